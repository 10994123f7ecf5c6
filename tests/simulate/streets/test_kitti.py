"""The files are as the official ones, and equal by seed, by any number of processes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from pcnn.simulate.streets.kitti import VERSION, cut, plan_sequences, simulate_kitti
from pcnn.simulate.streets.street import Street
from tests.simulate.streets.conftest import SMALL

# the ids of the published label definition, written down independently of the package
OFFICIAL = {
    0, 1, 10, 11, 13, 15, 16, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 52, 60, 70, 71, 72, 80,
    81, 99, 252, 253, 254, 255, 256, 257, 258, 259,
}  # fmt: skip
THINGS = {10, 11, 13, 15, 18, 20, 30, 31, 32, *range(252, 260)}
SCANS = {"00": 1, "08": 2}


def scans(root: Path) -> list[tuple[Path, Path]]:
    clouds = sorted(root.glob("sequences/*/velodyne/*.bin"))
    return [(c, c.parent.parent / "labels" / f"{c.stem}.label") for c in clouds]


def test_folders_and_names(small_set: Path) -> None:
    assert {p.name for p in (small_set / "sequences").iterdir()} == set(SCANS)
    for name, count in SCANS.items():
        folder = small_set / "sequences" / name
        entries = {p.name for p in folder.iterdir()}
        assert entries == {"velodyne", "labels", "calib.txt", "times.txt", "poses.txt"}
        for kind, suffix in (("velodyne", "bin"), ("labels", "label")):
            names = sorted(p.name for p in (folder / kind).iterdir())
            assert names == [f"{i:06d}.{suffix}" for i in range(count)]


def test_points_and_labels(small_set: Path) -> None:
    for cloud, label in scans(small_set):
        assert cloud.stat().st_size % 16 == 0
        points = np.fromfile(cloud, np.float32).reshape(-1, 4)
        labels = np.fromfile(label, np.uint32)
        assert len(labels) == len(points)
        assert 60_000 < len(points) <= 64 * 2171
        assert np.isfinite(points).all()
        assert 0 <= points[:, 3].min() <= points[:, 3].max() <= 1
        raw, instance = labels & 0xFFFF, labels >> 16
        assert set(np.unique(raw)) <= OFFICIAL
        thing = np.isin(raw, list(THINGS))
        assert (instance[thing] > 0).all()
        assert (instance[~thing] == 0).all()
        # one instance never mixes classes
        pairs = np.unique(labels[thing])
        assert len(np.unique(pairs >> 16)) == len(pairs)


def test_calibration_times_and_poses(small_set: Path) -> None:
    for name, count in SCANS.items():
        folder = small_set / "sequences" / name
        lines = dict(line.split(":") for line in (folder / "calib.txt").read_text().splitlines())
        assert list(lines) == ["P0", "P1", "P2", "P3", "Tr"]
        assert all(len(values.split()) == 12 for values in lines.values())
        rotation = np.array(lines["Tr"].split(), float).reshape(3, 4)[:, :3]
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)
        # forward, left and up of the sensor are forward, -right and -down of the camera
        np.testing.assert_allclose(rotation, [[0, -1, 0], [0, 0, -1], [1, 0, 0]], atol=0.01)

        times = np.loadtxt(folder / "times.txt", ndmin=1)
        np.testing.assert_allclose(times, np.arange(count) * 1.0)
        assert (folder / "poses.txt").read_text() == (
            small_set / "poses" / f"{name}.txt"
        ).read_text()
        poses = np.loadtxt(folder / "poses.txt", ndmin=2)
        assert poses.shape == (count, 12)
        np.testing.assert_allclose(poses[0].reshape(3, 4), np.eye(4)[:3], atol=1e-9)


def test_marker_describes_the_set(small_set: Path) -> None:
    record = json.loads((small_set / "SIMULATED.json").read_text())
    assert record["version"] == VERSION
    assert record["seed"] == 3
    assert {n: s["scans"] for n, s in record["sequences"].items()} == SCANS
    assert [s["split"] for s in record["sequences"].values()] == ["train", "val"]
    for name, sequence in record["sequences"].items():
        size = sum(c.stat().st_size for c, _ in scans(small_set) if c.parent.parent.name == name)
        assert sequence["points"] == size // 16
    settings = [s["settings"] for s in record["sequences"].values()]
    assert settings[0] != settings[1]
    sensors = [s["sensor"] for s in record["sequences"].values()]
    assert sensors[0]["dropout"] <= 1.3
    assert sensors[1]["dropout"] >= 1.2
    assert all("leaf_density" in d for d in record["sequences"]["08"]["districts"].values())


def digest(root: Path) -> dict[str, str]:
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def test_two_workers_write_the_bytes_of_one(small_set: Path, tmp_path: Path) -> None:
    root = simulate_kitti(tmp_path / "two", workers=2, progress=False, **SMALL)
    assert digest(root) == digest(small_set)


def test_another_seed_gives_another_street() -> None:
    mine, theirs = (Street(seed, 0, "train") for seed in (3, 4))
    assert mine.settings != theirs.settings
    assert mine.sensor_settings != theirs.sensor_settings
    again = Street(3, 0, "train")
    assert (again.settings, again.sensor_settings) == (mine.settings, mine.sensor_settings)
    assert again.district(0) == mine.district(0)
    np.testing.assert_array_equal(again.drive.pose(3.0), mine.drive.pose(3.0))


def test_senseless_requests_are_refused(tmp_path: Path) -> None:
    for wrong, message in (
        ({"train_scans": 0, "val_scans": 0}, "not both 0"),
        ({"train_scans": -1}, "at least 0"),
        ({"frame_stride": 0}, "at least 1"),
        ({"workers": 0}, "at least 1 worker"),
        ({"seed": -1}, "seed"),
    ):
        with pytest.raises(ValueError, match=message):
            simulate_kitti(tmp_path / "set", progress=False, **wrong)
        assert list(tmp_path.iterdir()) == []


def test_scans_are_shared_along_the_official_split() -> None:
    plans = plan_sequences(0, 40, 8, 15)
    assert {p.sequence: len(p.scans) for p in plans if p.split == "val"} == {8: 8}
    train = {p.sequence: len(p.scans) for p in plans if p.split == "train"}
    assert train == dict.fromkeys([0, 1, 2, 3, 4, 5, 6, 7, 9, 10], 4)
    uneven = [len(p.scans) for p in plan_sequences(0, 23, 0, 1)]
    assert uneven == [3, 3, 3, 2, 2, 2, 2, 2, 2, 2]
    jobs = [job for plan in plans for job in cut(plan)]
    assert sorted((j.sequence, i) for j in jobs for i in j.scans) == sorted(
        (p.sequence, i) for p in plans for i in p.scans
    )
    assert len({j.name for j in jobs}) == len(jobs)
