"""Clouds that are not in metres: their numbers show it, or the header of a LAS file says it."""

from __future__ import annotations

from pathlib import Path

import laspy
import numpy as np
import pytest

from pcnn.datasets.readers.table import valid_returns
from pcnn.datasets.readers.units import declared_unit, fitting_cell, unit_doubt, unit_of_wkt
from pcnn.experiment.predictor import doubt_of
from tests.datasets.las_files import write_las


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


FOOT = 1200 / 3937
WKT = (
    'PROJCS["NAD83 / Ohio North (ftUS)",GEOGCS["NAD83",DATUM["NAD83",SPHEROID["GRS 1980",6378137,'
    '298.257,AUTHORITY["EPSG","7019"]]],UNIT["degree",0.0174532925199433]],PARAMETER["x",1968500],'
    'UNIT["US survey foot",0.304800609601219],AXIS["X",EAST]]'
)
WKT2 = (
    'PROJCRS["Ohio",BASEGEOGCRS["NAD83",DATUM["NAD83",ELLIPSOID["GRS 1980",6378137,298.257,'
    'LENGTHUNIT["metre",1]]]],CONVERSION["x",PARAMETER["False easting",600000,'
    'LENGTHUNIT["metre",1]]],CS[Cartesian,2],AXIS["east",east],LENGTHUNIT["foot",0.3048]]'
)
METRES = 'PROJCS["UTM 32N",UNIT["degree",0.0174],PROJECTION["x"],UNIT["metre",1]]'


def keys(unit: int) -> bytes:
    """GeoTIFF keys of a projected system in a unit of EPSG."""
    numbers = [1, 1, 0, 2, 1024, 0, 1, 1, 3076, 0, 1, unit]
    return np.array(numbers, dtype="<u2").tobytes()


def with_record(path: Path, number: int, data: bytes, behind: bool = False) -> Path:
    las = write_las(path)
    record = laspy.VLR("LASF_Projection", number, "", data)
    if behind:
        las.evlrs = laspy.vlrs.vlrlist.VLRList([record])
    else:
        las.vlrs.append(record)
    las.write(path)
    return path


RECORDS = [
    (2112, WKT.encode() + b"\0", FOOT),
    (2112, WKT2.encode(), 0.3048),
    (2112, METRES.encode(), None),
    (2112, b'UNIT["foot"', None),
    (34735, keys(9003), FOOT),
    (34735, keys(9002), 0.3048),
    (34735, keys(9001), None),
    (34735, keys(9002)[:-3], None),
]


@pytest.mark.parametrize("behind", [False, True])
def test_feet_of_a_header_are_told(behind: bool, tmp_path: Path) -> None:
    for number, data, scale in RECORDS:
        found = declared_unit(with_record(tmp_path / "a.las", number, data, behind))
        assert (found is None) == (scale is None), data
        if found is not None:
            assert found.scale == pytest.approx(scale, rel=1e-9)
            assert "foot" in str(found)


def test_files_without_a_declaration_tell_nothing(tmp_path: Path) -> None:
    write_las(tmp_path / "a.las")
    (tmp_path / "b.las").write_bytes(b"LASF" + bytes(40))
    (tmp_path / "c.bin").write_bytes(bytes(32))
    assert [declared_unit(tmp_path / name) for name in ("a.las", "b.las", "c.bin")] == [None] * 3
    assert unit_of_wkt('LOCAL_CS["x",UNIT["degree",0.017]]') is None


def test_a_prediction_names_the_scale_unless_it_is_given(tmp_path: Path) -> None:
    path = with_record(tmp_path / "a.las", 34735, keys(9003))
    places = np.zeros((3, 3))
    said = doubt_of(path, places, 0.1, scale=1.0)
    assert said is not None
    assert "US survey foot" in said
    assert "--scale 0.304800609601" in said
    assert doubt_of(path, places, 0.1, scale=FOOT) is None
