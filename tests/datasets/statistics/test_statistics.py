"""Statistics agree with what can be counted by hand or by another method."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from scipy.stats import wasserstein_distance

from pcnn.datasets.density import nearest_distances, neighbours_per_voxel
from pcnn.datasets.s3dis.convert import convert_room
from pcnn.datasets.statistics import (
    Histogram,
    cloud_statistics,
    earth_movers_distance,
    find_clouds,
    read_cloud,
    read_statistics,
    set_statistics,
)
from pcnn.datasets.statistics.clouds import find_rings
from pcnn.simulate.streets.lidar import ELEVATIONS, firing_azimuths


def cloud(count: int = 400, seed: int = 0, spread: float = 0.4) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, spread, (count, 3)).astype(np.float32)


def rings_of(radius: float, keep: np.ndarray | None = None) -> np.ndarray:
    """A 64-beam scan of a sphere about the sensor, in the order of the official files."""
    azimuth, elevation = np.meshgrid(firing_azimuths(), ELEVATIONS)
    flat = np.cos(elevation)
    points = np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)], -1)
    points = (radius * points).astype(np.float32)
    return points.reshape(-1, 3) if keep is None else points[keep]


def test_neighbours_are_those_of_brute_force() -> None:
    points = cloud(300)
    points[:5] = points[5]  # several points in one voxel count once
    cells = np.unique(np.floor(points.astype(float) / 0.1).astype(int), axis=0)
    near = (np.abs(cells[:, None] - cells[None]).max(-1) <= 1).sum()
    assert neighbours_per_voxel(points, 0.1) == pytest.approx(near / len(cells))
    assert neighbours_per_voxel(points[:1], 0.1) == 1.0
    assert np.isnan(neighbours_per_voxel(points[:0], 0.1))
    # cells at the ends of two rows are no neighbours
    corners = np.array([[0.05, 0.05, 0.95], [0.05, 0.15, 0.05]], np.float32)
    assert neighbours_per_voxel(corners, 0.1) == 1.0
    for far in (1e8, 1e30):  # the second has cells beyond int64
        with pytest.raises(ValueError, match="stray points"):
            neighbours_per_voxel(np.array([[0, 0, 0], [far, far, far]], np.float32), 0.01)


def test_nearest_distances_are_those_of_a_tree() -> None:
    points = cloud(400, spread=20.0)
    points[7] = points[8]
    expected = cKDTree(points.astype(float)).query(points.astype(float), k=2)[0][:, 1]
    np.testing.assert_allclose(nearest_distances(points), expected, atol=1e-5)
    assert len(nearest_distances(points[:1])) == 0
    assert len(nearest_distances(cloud(5000))) == 500


def test_histograms_keep_every_value_and_their_distance() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(3, 1, 5000), rng.normal(4, 2, 7000)
    first, second = (Histogram.of(v, -5.0, 12.0, 1700) for v in (a, b))
    assert earth_movers_distance(first, second) == pytest.approx(
        wasserstein_distance(np.clip(a, -5, 12), np.clip(b, -5, 12)), rel=0.01
    )
    assert earth_movers_distance(first, first) == 0.0
    assert first.quantile(0.5) == pytest.approx(np.median(a), abs=0.02)
    assert first.quantile(0.05) == pytest.approx(np.quantile(a, 0.05), abs=0.02)
    both = first + second
    assert both.counts.sum() == 12_000
    assert both.coarser(10).counts.sum() == 12_000
    assert Histogram.of(np.array([-99.0, 99.0]), 0.0, 1.0, 4).counts.tolist() == [1, 0, 0, 1]
    # a median beyond the bins is not the end of the bins
    far = Histogram.of(np.array([150.0, 200.0, 250.0, 3.0, -9.0]), 0.0, 120.0, 480)
    assert (far.under, far.over) == (1, 3)
    assert (far.quantile(0.5), far.quantile(0.1)) == (np.inf, -np.inf)
    assert far.quantile(0.39) == pytest.approx(3.25, abs=0.02)
    again = Histogram.from_json((far + far).coarser(4).to_json())
    assert (again.under, again.over, again.quantile(0.5)) == (2, 6, np.inf)
    empty = Histogram.of(np.zeros(0), -5.0, 12.0, 1700)
    assert np.isnan(empty.quantile(0.5))
    with pytest.raises(ValueError, match="without values"):
        earth_movers_distance(first, empty)
    with pytest.raises(ValueError, match="other bins"):
        earth_movers_distance(first, Histogram.of(a, 0.0, 1.0, 10))


def test_rings_and_missing_returns_are_found() -> None:
    whole = find_rings(rings_of(10.0))
    np.testing.assert_array_equal(whole.points, 2171)
    np.testing.assert_allclose(whole.elevation, np.degrees(ELEVATIONS), atol=0.01)
    np.testing.assert_allclose(whole.range, 10.0, atol=1e-4)
    assert whole.missing < 0.02
    keep = np.ones((64, 2171), bool)
    keep[:16, 500:1500] = False  # the sky
    part = find_rings(rings_of(10.0, keep))
    assert part.missing == pytest.approx(16 * 1000 / (64 * 2171), abs=0.015)
    shuffled = np.random.default_rng(0).permutation(rings_of(10.0))
    assert find_rings(shuffled) is None
    assert find_rings(shuffled[:3]) is None


def test_a_set_adds_its_clouds_and_survives_its_file(tmp_path: Path) -> None:
    clouds = [
        cloud_statistics(cloud(100), np.full(100, 0.3, np.float32), ["car"] * 30 + ["road"] * 70),
        cloud_statistics(cloud(300, 1), np.full(300, 0.5, np.float32), ["road"] * 300),
        cloud_statistics(cloud(0)),
    ]
    both = set_statistics("two", "real", clouds)
    assert both.points == [100, 300]
    assert both.classes == {"road": 0.925, "car": 0.075}
    assert both.histograms["remission"].counts[[30, 50]].tolist() == [100, 300]
    assert both.histograms["height"].counts.sum() == 400
    assert both.rings is None
    path = tmp_path / "two.json"
    path.write_text(json.dumps(both.to_json()))
    again = read_statistics(path)
    assert again.to_json() == both.to_json()
    assert set(again.distances(both).values()) == {0.0}
    with pytest.raises(ValueError, match="no cloud holds a point"):
        set_statistics("none", "real", [clouds[2]])


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    for content in ("[]", "{}", "not json", '{"format": "pcnn statistics 1"}'):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"other\.json"):
            read_statistics(path)
    with pytest.raises(ValueError, match="10 points, but 9 remission"):
        cloud_statistics(cloud(10), np.zeros(9, np.float32))


def test_clouds_of_every_layout_are_found(tmp_path: Path) -> None:
    points = cloud(50)
    scan = tmp_path / "kitti" / "sequences" / "08" / "velodyne" / "000000.bin"
    scan.parent.mkdir(parents=True)
    np.concatenate([points, np.full((50, 1), 0.25, np.float32)], 1).tofile(scan)
    labels = tmp_path / "kitti" / "sequences" / "08" / "labels"
    labels.mkdir()
    np.full(50, 10 | 3 << 16, np.uint32).tofile(labels / "000000.label")
    (labels.parent / "times.txt").write_text("0.0\n")
    (found,) = find_clouds(tmp_path / "kitti")
    assert found.name == "sequences/08/velodyne/000000.bin"
    read = read_cloud(found.path)
    np.testing.assert_array_equal(read.points, points)
    assert (set(read.remission), set(read.classes)) == ({0.25}, {"car"})

    folder = tmp_path / "mixed"
    (folder / "office_1").mkdir(parents=True)
    torch.save(points.astype(np.float64), folder / "cloud_bin_0.pth")
    coloured = np.concatenate([points, np.full((50, 3), 90.0)], 1)
    np.savetxt(folder / "office_1" / "office_1.txt", coloured, "%.4f")
    np.save(folder / "own.npy", points)
    np.save(folder / "own_label.npy", np.arange(50) % 3)
    (folder / "notes.txt").write_text("no cloud")
    files = find_clouds(folder)
    assert [f.name for f in files] == ["cloud_bin_0.pth", "office_1/office_1.txt", "own.npy"]
    for file in files:
        read = read_cloud(file.path)
        np.testing.assert_allclose(read.points, points, atol=1e-4)
        assert read.remission is None
        assert (read.classes is None) == (file.name != "own.npy")


def test_rooms_are_read_as_training_reads_them(tmp_path: Path) -> None:
    room = tmp_path / "Area_1" / "office_1"
    (room / "Annotations").mkdir(parents=True)
    points = np.concatenate([cloud(50), np.full((50, 3), 187.0)], axis=1)
    np.savetxt(room / "office_1.txt", points, "%.4f")
    np.savetxt(room / "Annotations" / "chair_1.txt", points[:20], "%.4f")
    np.savetxt(room / "Annotations" / "chair_2.txt", points[20:30], "%.4f")
    np.savetxt(room / "Annotations" / "wall_1.txt", points[30:], "%.4f")
    (found,) = find_clouds(tmp_path)
    assert found.name == "Area_1/office_1"
    # a control character in place of a space, as the published files have it
    text = (room / "Annotations" / "chair_1.txt").read_bytes()
    broken = text.replace(b"187.0000 187.0000 187.0000", b"187.0000\x10187.0000 187.0000", 1)
    (room / "Annotations" / "chair_1.txt").write_bytes(broken)
    for path in (found.path, room / "office_1.txt"):
        read = read_cloud(path)
        np.testing.assert_allclose(read.points, points[:, :3], atol=1e-4)
        assert read.classes.tolist() == ["chair"] * 30 + ["wall"] * 20
        assert ["chair_1.txt, line 1" in note for note in read.notes] == [True]
    # arrays of a room are one cloud, not four
    convert_room(room, tmp_path / "arrays" / "Area_1" / "office_1")
    (found,) = find_clouds(tmp_path / "arrays")
    read = read_cloud(found.path)
    np.testing.assert_allclose(read.points, points[:, :3], atol=1e-4)
    assert set(read.classes) == {"chair", "wall"}


def test_missing_returns_count_for_nothing(tmp_path: Path) -> None:
    points = np.concatenate([cloud(60), np.full((60, 1), 0.5, np.float32)], 1)
    points[10:30] = 0
    points.tofile(tmp_path / "a.bin")
    np.save(tmp_path / "a_label.npy", np.arange(60))
    read = read_cloud(tmp_path / "a.bin")
    assert (len(read.points), read.missing) == (40, 20)
    assert set(read.remission) == {0.5}
    assert read.classes.tolist() == [str(n) for n in (*range(10), *range(30, 60))]


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "short.bin").write_bytes(b"\0" * 17)
    (tmp_path / "text.pth").write_text("hello")
    torch.save({"a": 1}, tmp_path / "dict.pth")
    np.save(tmp_path / "flat.npy", np.zeros(5))
    room = tmp_path / "room" / "room.txt"
    room.parent.mkdir()
    room.write_text("1 2 3 4 5 6\n1 2 x 4 5 6\n")
    for name in ("short.bin", "text.pth", "dict.pth", "flat.npy", "room/room.txt"):
        with pytest.raises(ValueError, match=Path(name).name):
            read_cloud(tmp_path / name)
    empty = tmp_path / "empty"
    empty.mkdir()
    for missing in (empty, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match=missing.name):
            find_clouds(missing)
