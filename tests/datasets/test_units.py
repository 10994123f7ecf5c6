from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.datasets.readers.table import valid_returns
from pcnn.datasets.readers.units import fitting_cell, unit_doubt


def ground(n: int = 4000, width: float = 20.0) -> np.ndarray:
    """[n, 3] float64 [m]: rolling ground with a house."""
    rng = np.random.default_rng(0)
    xy = rng.uniform(0, width, (n, 2))
    z = 0.1 * width * np.sin(xy[:, 0] / width * 4)
    z[(np.abs(xy - width / 2) < width / 8).all(axis=1)] = 0.3 * width
    return np.column_stack([xy, z])


def test_missing_returns():
    points = np.ones((7, 4), dtype=np.float32)
    points[1] = 0
    points[2, 0] = np.nan
    points[3, 2] = np.inf
    points[4, :2] = 0
    points[5, 3] = np.nan  # no coordinate
    assert valid_returns(points).tolist() == [True, False, False, False, True, True, True]
    assert valid_returns(np.array([[0, 0, 0], [0, 0, 1]])).tolist() == [False, True]
    assert valid_returns(np.empty((0, 3))).shape == (0,)


@pytest.mark.parametrize("offset", [[0, 0, 0], [8, 47, 400], [412_345, 5_412_345, 812]])
def test_metres_raise_no_doubt(offset: list[float]):
    assert unit_doubt(ground() + offset, 0.5) is None
    assert unit_doubt(ground() + offset) is None


@pytest.mark.parametrize(
    ("unit", "scale"), [("millimetres", 0.001), ("centimetres", 0.01), ("feet", 0.3048)]
)
def test_other_units_are_named(unit: str, scale: float):
    voxel = 0.15 if unit == "feet" else 0.5  # feet show only where voxels are small
    found = unit_doubt(ground() / scale, voxel)
    assert found is not None
    assert unit in str(found)
    assert found.scale == scale


def test_degrees():
    metres = ground()
    cloud = np.column_stack([8.54 + metres[:, 0] / 75_000, 47.37 + metres[:, 1] / 111_000])
    found = unit_doubt(np.column_stack([cloud, 408 + metres[:, 2]]))
    assert "degrees" in str(found)
    assert "UTM zone 32" in str(found)


def test_small_things_are_told_a_cell():
    thing = ground(width=0.08)
    found = unit_doubt(thing, 0.05)
    assert "0.08 m wide, 1.6 voxels of 0.05 m" in str(found)
    assert f"about {fitting_cell(thing):.2g} m" in str(found)
    assert 0.0005 < fitting_cell(thing) < 0.004


def test_nothing_to_say_of_few_points():
    assert unit_doubt(ground(99) * 1000, 0.5) is None
    assert unit_doubt(np.zeros((500, 3)), 0.5) is None


@pytest.mark.data
def test_real_clouds_are_in_metres(data_root: Path):
    path = data_root / "kitti/sequences/00/velodyne/000000.bin"
    scan = np.fromfile(path, dtype="<f4").reshape(-1, 4)
    for voxel in (0.05, 0.3):
        assert unit_doubt(scan, voxel) is None
    millimetres = unit_doubt(scan[:, :3] * 1000.0, 0.1)
    assert millimetres is not None
    assert millimetres.scale == 0.001
    room = np.load(data_root / "s3dis/s3dis_crop.npz")["xyz"]
    assert unit_doubt(room, 0.05) is None
