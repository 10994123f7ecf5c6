"""Simulated sets have the official files, and are the same for the same seed."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.datasets.registration.gt_files import read_gt_overlap, read_scene
from pcnn.datasets.s3dis.classes import CLASS_NAMES, ROOM_TYPES
from pcnn.files.simulated import is_simulated
from pcnn.simulate.rooms import threedmatch
from pcnn.simulate.rooms.s3dis import do_room, plan_area, simulate_rooms
from pcnn.simulate.rooms.threedmatch import Job, Scene, do_job, simulate_fragments
from pcnn.simulate.streets.kitti import cut, plan_sequences, simulate_kitti
from tests.simulate.conftest import ROOMS, STREETS

#: Points of every file, and the middle of them, of the versions that the weights were trained on.
EXPECTED = {
    "sequences/00/velodyne/000000.bin": (122190, [0.7877, 1.7133, -1.1438]),
    "sequences/08/velodyne/000000.bin": (122051, [0.5464, 1.6011, -1.3047]),
    "sequences/08/velodyne/000001.bin": (123425, [0.3195, -1.0728, -1.1157]),
    "data/test/simulated-test-000-lounge/cloud_bin_0.pth": (19727, [0.2208, -0.1383, 1.6618]),
    "data/test/simulated-test-000-lounge/cloud_bin_1.pth": (10226, [-0.0942, 0.2061, 1.408]),
    "Area_1/auditorium_1/auditorium_1.txt": (37153, [-35.2869, 4.3918, 1.7556]),
    "Area_2/conferenceRoom_1/conferenceRoom_1.txt": (13132, [-38.1473, 3.6724, 1.3537]),
    "Area_3/copyRoom_1/copyRoom_1.txt": (6291, [-38.2708, 1.8571, 1.2495]),
    "Area_4/hallway_1/hallway_1.txt": (23524, [-31.7701, -1.3523, 1.2034]),
    "Area_5/lobby_1/lobby_1.txt": (35149, [-35.178, -4.2901, 1.4911]),
    "Area_6/lounge_1/lounge_1.txt": (11201, [-37.7617, -2.5896, 1.321]),
}
# the ids of the published label definition, written down independently of the package
THINGS = {10, 11, 13, 15, 18, 20, 30, 31, 32, *range(252, 260)}
OFFICIAL = THINGS | {0, 1, 16, 40, 44, 48, 49, 50, 51, 52, 60, 70, 71, 72, 80, 81, 99}


def points_of(path: Path) -> np.ndarray:
    if path.suffix == ".bin":
        return np.fromfile(path, np.float32).reshape(-1, 4)
    if path.suffix == ".pth":
        return torch.load(path, weights_only=False)
    return np.loadtxt(path)


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def test_a_seed_gives_the_clouds_that_weights_were_trained_on(
    streets: Path, fragments: Path, rooms: Path
) -> None:
    for name, (count, means) in EXPECTED.items():
        (path,) = (r / name for r in (streets, fragments, rooms) if (r / name).is_file())
        points = points_of(path)
        # machines round differently: a ray on an edge may fall to its other side
        assert len(points) == pytest.approx(count, rel=1e-4), name
        np.testing.assert_allclose(points[:, :3].astype(float).mean(0), means, atol=2e-3)


def test_two_workers_write_the_bytes_of_one(streets: Path, tmp_path: Path) -> None:
    root = simulate_kitti(tmp_path / "two", workers=2, progress=False, **STREETS)
    assert files(root) == files(streets)


@pytest.mark.parametrize(
    ("simulate", "wrong"),
    [
        (simulate_kitti, {"train_scans": 0, "val_scans": 0}),
        (simulate_kitti, {"train_scans": -1}),
        (simulate_kitti, {"frame_stride": 0}),
        (simulate_kitti, {"workers": 0}),
        (simulate_kitti, {"seed": -1}),
        (simulate_kitti, {"sensors": "sonar"}),
        (simulate_fragments, {"fragments": 1}),
        (simulate_fragments, {"train_scenes": -1}),
        (simulate_fragments, {"train_scenes": 0, "val_scenes": 0, "test_scenes": 0}),
        (simulate_rooms, {"rooms": 0}),
        (simulate_rooms, {"spacing": 0.0}),
        (simulate_rooms, {"layout": "ply"}),
    ],
)
def test_senseless_requests_write_nothing(simulate, wrong: dict, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[-1]):
        simulate(tmp_path / "set", progress=False, **wrong)
    assert list(tmp_path.iterdir()) == []


def test_scans_and_labels(streets: Path) -> None:
    record = json.loads((streets / "SIMULATED.json").read_text())
    assert {n: s["split"] for n, s in record["sequences"].items()} == {"00": "train", "08": "val"}
    for cloud in streets.glob("sequences/*/velodyne/*.bin"):
        points = points_of(cloud)
        labels = np.fromfile(cloud.parents[1] / "labels" / f"{cloud.stem}.label", np.uint32)
        assert len(labels) == len(points) <= 64 * 2171
        assert np.isfinite(points).all()
        assert 0 <= points[:, 3].min() <= points[:, 3].max() <= 1
        raw, instance = labels & 0xFFFF, labels >> 16
        assert set(np.unique(raw)) <= OFFICIAL
        thing = np.isin(raw, list(THINGS))
        np.testing.assert_array_equal(instance > 0, thing)
        # one instance never mixes classes
        pairs = np.unique(labels[thing])
        assert len(np.unique(pairs >> 16)) == len(pairs)


def test_calibration_times_and_poses(streets: Path) -> None:
    for name, count in {"00": 1, "08": 2}.items():
        folder = streets / "sequences" / name
        lines = dict(line.split(":") for line in (folder / "calib.txt").read_text().splitlines())
        assert list(lines) == ["P0", "P1", "P2", "P3", "Tr"]
        rotation = np.array(lines["Tr"].split(), float).reshape(3, 4)[:, :3]
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)
        # forward, left and up of the sensor are forward, -right and -down of the camera
        np.testing.assert_allclose(rotation, [[0, -1, 0], [0, 0, -1], [1, 0, 0]], atol=0.01)
        np.testing.assert_allclose(np.loadtxt(folder / "times.txt", ndmin=1), np.arange(count))
        poses = (folder / "poses.txt").read_text()
        assert poses == (streets / "poses" / f"{name}.txt").read_text()
        first = np.loadtxt(poses.splitlines(), ndmin=2)[0].reshape(3, 4)
        np.testing.assert_allclose(first, np.eye(4)[:3], atol=1e-9)


def test_scans_are_shared_along_the_official_split() -> None:
    plans = plan_sequences(0, 23, 8, 1)
    assert [(p.sequence, p.split) for p in plans if len(p.scans) == 8] == [(8, "val")]
    assert [len(p.scans) for p in plans if p.split == "train"] == [3] * 3 + [2] * 7
    jobs = [job for plan in plans for job in cut(plan)]
    assert sorted((j.sequence, i) for j in jobs for i in j.scans) == sorted(
        (p.sequence, i) for p in plans for i in p.scans
    )
    assert len({j.name for j in jobs}) == len(jobs)


def pose(folder: Path, number: int) -> np.ndarray:
    return np.loadtxt(folder / f"cloud_bin_{number}.info.txt", skiprows=1)


def test_ground_truth_aligns_fragment_j_with_i(fragments: Path) -> None:
    (folder,) = (fragments / "data" / "test").iterdir()
    found, listed = [], []
    for name in ("3DMatch", "3DLoMatch"):
        benchmark = fragments / "metadata" / "benchmarks" / name / folder.name
        overlaps = read_gt_overlap(benchmark / "gt_overlap.log")
        found += read_scene(benchmark, folder.name)
        assert bool(found) == ((overlaps[0, 1] > 0.3) or name == "3DLoMatch")
        listed += pickle.loads((fragments / "metadata" / f"{name}.pkl").read_bytes())
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

    assert near(source @ between[:3, :3].T + between[:3, 3]) > max(
        0.8 * pair.overlap, near(source) + 0.1
    )
    assert 0 < pair.information[0, 0] <= 5000
    assert is_simulated(folder)
    for number in range(2):  # the box of the published volumes, one point a voxel
        points = points_of(folder / f"cloud_bin_{number}.pth")
        assert points.dtype == np.float64
        cells = np.floor((points - [-1.5, -1.5, 0.5]) / 0.025)
        assert len(np.unique(cells, axis=0)) == len(points)
        assert 0 <= cells.min() <= cells.max() <= 120


def test_a_fragment_does_not_depend_on_the_job_that_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threedmatch, "FRAMES", 2)  # two frames show it
    for name, first in (("whole", 0), ("part", 1)):
        do_job(tmp_path / name, Job(Scene(8, "test", 0, 2), first, 2))
    whole, part = files(tmp_path / "whole"), files(tmp_path / "part")
    assert len(part) == 2
    assert part.items() <= whole.items()


def test_annotations_add_up_to_the_room(rooms: Path, tmp_path: Path) -> None:
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
        angles = (rooms / area / f"{area}_alignmentAngle.txt").read_text().splitlines()
        assert re.fullmatch(rf"{name} (0|90|180|270)", angles[2])
    assert {"ceiling", "floor", "wall", "door", "table", "chair", "clutter"} <= seen
    (job,) = plan_area(ROOMS["seed"], 1, 1, ROOMS["spacing"], "arrays")
    do_room(tmp_path, job)
    arrays = {p.stem: np.load(p) for p in (tmp_path / "Area_1" / job.name).iterdir()}
    text = np.loadtxt(rooms / "Area_1" / job.name / f"{job.name}.txt")
    np.testing.assert_allclose(arrays["coord"], text[:, :3], atol=6e-4)
    np.testing.assert_array_equal(arrays["color"], text[:, 3:])
    assert arrays["segment"].max() < len(CLASS_NAMES)


def test_all_types_of_rooms_come() -> None:
    few, many = ([plan_area(0, a, n, 0.1, "text") for a in range(1, 7)] for n in (2, 30))
    assert [plan[:2] for plan in many] == few
    assert {job.room_type for plan in many for job in plan} == set(ROOM_TYPES)
    for split in ("train", "val", "test"):
        assert len({Scene(0, split, index, 2).room_type for index in range(12)}) == 12
