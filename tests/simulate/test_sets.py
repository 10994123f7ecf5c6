"""Simulated sets have the official files, and are the same for the same seed."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.datasets.registration.gt_files import read_scene
from pcnn.files.simulated import is_simulated
from pcnn.simulate.streets.kitti import KITTI
from tests.simulate.conftest import STREETS

#: Points of every cloud, and the middle of them.
EXPECTED = {
    "sequences/00/velodyne/000000.bin": (124776, [0.5853, 1.5727, -1.2821]),
    "sequences/08/velodyne/000000.bin": (125664, [-0.1581, 1.7922, -1.2441]),
    "sequences/08/velodyne/000001.bin": (125882, [-0.073, 1.721, -1.2152]),
    "data/test/simulated-test-000-office/cloud_bin_0.pth": (15917, [0.3134, 0.4307, 1.4283]),
    "data/test/simulated-test-000-office/cloud_bin_1.pth": (16453, [-0.0666, -0.2999, 1.4796]),
    "Area_1/auditorium_1/auditorium_1.txt": (49034, [-34.3321, 5.3334, 1.5411]),
    "Area_2/conferenceRoom_1/conferenceRoom_1.txt": (10637, [-37.5124, 2.3812, 1.3724]),
    "Area_3/copyRoom_1/copyRoom_1.txt": (7490, [-38.2858, 2.3246, 1.2731]),
    "Area_4/hallway_1/hallway_1.txt": (18644, [-30.9091, -1.0615, 1.3526]),
    "Area_5/lobby_1/lobby_1.txt": (35021, [-35.4454, -4.729, 1.4582]),
    "Area_6/lounge_1/lounge_1.txt": (11064, [-37.0241, -2.1044, 1.1676]),
}


def points_of(path: Path) -> np.ndarray:
    if path.suffix == ".bin":
        return np.fromfile(path, np.float32).reshape(-1, 4)
    if path.suffix == ".pth":
        return torch.load(path, weights_only=False)
    return np.loadtxt(path)


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def test_a_seed_gives_the_clouds_that_it_gave(streets: Path, fragments: Path, rooms: Path) -> None:
    """Where this fails on purpose, the versions of the simulators change, too."""
    for name, (count, means) in EXPECTED.items():
        (path,) = (r / name for r in (streets, fragments, rooms) if (r / name).is_file())
        points = points_of(path)
        # machines round differently: a ray on an edge may fall to its other side
        assert len(points) == pytest.approx(count, rel=1e-3), name
        np.testing.assert_allclose(points[:, :3].astype(float).mean(0), means, atol=1e-2)


def test_two_workers_write_the_bytes_of_one(streets: Path, tmp_path: Path) -> None:
    root = KITTI.write(tmp_path / "two", workers=2, progress=False, **STREETS)
    assert files(root) == files(streets)


def pose(folder: Path, number: int) -> np.ndarray:
    return np.loadtxt(folder / f"cloud_bin_{number}.info.txt", skiprows=1)


def test_ground_truth_aligns_fragment_j_with_i(fragments: Path) -> None:
    (folder,) = (fragments / "data" / "test").iterdir()
    found, listed = [], []
    for name in ("3DMatch", "3DLoMatch"):
        benchmark = fragments / "metadata" / "benchmarks" / name / folder.name
        found += read_scene(benchmark, folder.name)
        entries = pickle.loads((fragments / "metadata" / f"{name}.pkl").read_bytes())
        assert all((entry["overlap"] > 0.3) == (name == "3DMatch") for entry in entries)
        listed += entries
        assert len(found) == len(listed)
    (pair,), (entry,) = found, listed
    between = np.linalg.inv(pose(folder, pair.target)) @ pose(folder, pair.source)
    np.testing.assert_allclose(pair.transform.numpy(), between, atol=1e-6)
    np.testing.assert_allclose(entry["rotation"], between[:3, :3], atol=1e-6)
    np.testing.assert_allclose(entry["translation"], between[:3, 3], atol=1e-6)
    assert entry["pcd0"] == f"test/{folder.name}/cloud_bin_{pair.target}.pth"
    target, source = (points_of(folder / f"cloud_bin_{n}.pth") for n in (pair.target, pair.source))

    def near(moved: np.ndarray) -> float:
        return float(
            np.mean([np.linalg.norm(target - p, axis=1).min() < 0.05 for p in moved[::37]])
        )

    there = near(source @ between[:3, :3].T + between[:3, 3])
    assert there > max(0.7 * entry["overlap"], near(source) + 0.1)
    assert 0 < pair.information[0, 0] <= 5000
    assert is_simulated(folder)
    for number in range(2):  # the box of the published volumes, one point a voxel
        points = points_of(folder / f"cloud_bin_{number}.pth")
        assert points.dtype == np.float64
        cells = np.floor((points - [-1.5, -1.5, 0.5]) / 0.025)
        assert len(np.unique(cells, axis=0)) == len(points)
        assert 0 <= cells.min() <= cells.max() <= 120


def test_annotations_add_up_to_the_room(rooms: Path) -> None:
    record, seen = json.loads((rooms / "SIMULATED.json").read_text()), set()
    for area, described in record["areas"].items():
        ((name, own),) = described.items()
        folder = rooms / area / name
        text = (folder / f"{name}.txt").read_text()
        line = r"-?\d+\.\d{3} -?\d+\.\d{3} -?\d+\.\d{3} \d{1,3} \d{1,3} \d{1,3}"
        assert all(re.fullmatch(line, each) for each in text.splitlines()[:200])
        parts = {p.stem: np.loadtxt(p, ndmin=2) for p in (folder / "Annotations").iterdir()}
        whole, stacked = np.loadtxt(text.splitlines()), np.concatenate(list(parts.values()))
        np.testing.assert_array_equal(whole[np.lexsort(whole.T)], stacked[np.lexsort(stacked.T)])
        assert (own["points"], own["objects"]) == (len(whole), len(parts))
        assert 0 <= whole[:, 3:].min() <= whole[:, 3:].max() <= 255
        seen |= {part.split("_")[0] for part in parts}
        assert own["angle"] in (0, 90, 180, 270)
    assert {"ceiling", "floor", "wall", "door", "table", "chair", "clutter"} <= seen
