"""Files of float32 numbers: which columns they have is known, or they are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pcnn.datasets.readers.column_count import COUNTS, is_contradicted, likely_columns

from pcnn.datasets.readers.clouds import Reading, read_points
from pcnn.datasets.readers.columns import read_bin
from pcnn.errors import FileError


def rotating(n: int = 4000, seed: int = 0) -> np.ndarray:
    """[n, 4] float32 of a rotating scanner: x, y, z and remission in 0..1."""
    rng = np.random.default_rng(seed)
    angle, far = np.linspace(0, 2 * np.pi, n), rng.gamma(2, 6, n) + 2
    z = np.maximum(-1.7, far * np.tan(rng.uniform(-0.4, 0.05, n)))
    i = rng.beta(2, 5, n)
    return np.column_stack([far * np.cos(angle), far * np.sin(angle), z, i]).astype(np.float32)


def room(n: int = 4000, seed: int = 0) -> np.ndarray:
    """[n, 6] float32: a corner of a room from (0, 0, 0) on, and colour in 0..1."""
    rng = np.random.default_rng(seed)
    xyz = rng.uniform(0, [5, 4, 2.8], (n, 3))
    xyz[np.arange(n), rng.integers(0, 3, n)] = 0.01
    return np.column_stack([xyz, np.clip(rng.normal(0.6, 0.15, (n, 3)), 0, 1)]).astype(np.float32)


def nuscenes(n: int = 4000) -> np.ndarray:
    """[n, 5] float32: intensity in 0..255, and the ring."""
    ring = np.arange(n) % 32
    points = np.column_stack([rotating(n), ring]).astype(np.float32)
    points[:, 3] = np.round(points[:, 3] * 255)
    return points


def with_bytes(points: np.ndarray) -> np.ndarray:
    """Colours in 0..255."""
    points[:, 3:] = np.round(points[:, 3:] * 255)
    return points


def saved(path: Path, points: np.ndarray) -> Path:
    points.astype("<f4").tofile(path)
    return path


def kitti_files() -> dict[str, np.ndarray]:
    """Scans that KITTI's reader must take, however odd."""
    scan, rng = rotating(), np.random.default_rng(1)
    some = rng.random(len(scan)) < 0.6
    return {
        "whole": scan,
        "shuffled": scan[rng.permutation(len(scan))],
        "few": scan[:70],
        "one": scan[:1],
        "without remission": scan * [1, 1, 1, 0],
        "remission in bytes": scan * [1, 1, 1, 255],
        "zeros": np.where(some[:, None], 0, scan),
        "nan": np.where(some[:, None], np.nan, scan),
        "firings of two lasers": scan[np.argsort(scan[:, 2])]
        .reshape(2, -1, 4)[::-1]
        .swapaxes(0, 1)
        .reshape(-1, 4),
        "a room": room()[:, :4],
        "unit cube": rng.random((500, 4)),
        "all the same": np.ones((300, 4)),
        "flat": scan * [1, 1, 0, 1],
    }


def test_scans_of_kitti_are_read_without_options(tmp_path: Path):
    for name, values in kitti_files().items():
        points = values.astype(np.float32)
        cloud = read_points(saved(tmp_path / "a.bin", points))
        kept = points[cloud.point_index.numpy()]
        np.testing.assert_array_equal(cloud.points, kept[:, :3], err_msg=name)
        np.testing.assert_array_equal(cloud.features, kept[:, 3:], err_msg=name)
        assert cloud.n_points_total == len(points), name


@pytest.mark.data
def test_real_scans_of_kitti_are_read_without_options(data_root: Path, tmp_path: Path):
    scans = sorted((data_root / "kitti/sequences/00/velodyne").glob("*.bin"))
    assert len(scans) >= 3
    for path in scans:
        whole = read_bin(path)
        assert read_points(path).n_points == len(whole)  # no return is missing
    rng = np.random.default_rng(0)
    points = np.fromfile(scans[0], dtype="<f4").reshape(-1, 4)
    near = np.hypot(points[:, 0], points[:, 1])
    parts = [points[near < r] for r in (5, 25)] + [points[(points > 0)[:, axis]] for axis in (0, 1)]
    parts += [points[start : start + 100] for start in range(0, 100_000, 5000)]
    parts += [points[rng.permutation(len(points))[:k]] for k in (64, 1000, 20_000)]
    for part in parts:
        assert len(read_bin(saved(tmp_path / "part.bin", part))) == len(part)
    ring = np.arange(len(points)) % 64
    others = {"5": np.column_stack([points, ring]), "3": points[:, :3]}
    for count, other in others.items():
        multiple = other[: len(other) // 4 * 4]  # of 16 bytes, too
        with pytest.raises(FileError, match=f"looks like .*({count} numbers|nuscenes)"):
            read_bin(saved(tmp_path / "other.bin", multiple))


@pytest.mark.data
def test_a_real_room_of_six_columns_is_refused(data_root: Path):
    path = data_root / "formats/tests_s3dis/points/Area_1_office_2.bin"
    with pytest.raises(FileError, match="x,y,z,red,green,blue of ScanNet or S3DIS"):
        read_points(path)
    cloud = read_points(path, reading=Reading(columns=("scannet",)))
    assert cloud.features.shape == (100, 3)
    assert 0.5 < float(cloud.features.max()) <= 1


OTHERS = {
    "3 numbers": rotating()[:, :3],
    "x,y,z,intensity,ring of nuscenes: --columns nuscenes": nuscenes(),
    "red,green,blue of ScanNet or S3DIS: --columns scannet": with_bytes(room()),
    "red,green,blue of sunrgbd: --columns sunrgbd": room() - [2, 2, 0, 0, 0, 0],
    "6 numbers": np.column_stack([nuscenes(), np.linspace(0.01, 0.1, 4000)]),
    "7 numbers": np.column_stack([with_bytes(room()), np.arange(4000) // 300]),
}


@pytest.mark.parametrize("likely", OTHERS)
def test_other_columns_are_refused_and_named(likely: str, tmp_path: Path):
    for rows in (400, 3997, 4000):
        path = saved(tmp_path / "a.bin", OTHERS[likely][:rows])
        with pytest.raises(FileError, match=r"a\.bin: .*x,y,z,intensity.*it looks like ") as error:
            read_points(path)
        assert likely in str(error.value)


def test_columns_by_name(tmp_path: Path):
    points = nuscenes()
    by_suffix = read_points(saved(tmp_path / "a.pcd.bin", points))
    np.testing.assert_allclose(by_suffix.features[:, 0], points[:, 3] / 255, rtol=1e-6)
    saved(tmp_path / "a.bin", points)
    ringed = Reading(("ring", "intensity"), columns=("nuscenes",))
    cloud = read_points(tmp_path / "a.bin", reading=ringed)
    np.testing.assert_array_equal(cloud.points, points[:, :3])
    np.testing.assert_allclose(cloud.features, points[:, [4, 3]] / [1, 255], rtol=1e-6)
    seven = np.column_stack([points, points[:, 4] * 0.001, points[:, 4] % 3])
    names = ("X", "Y", "Z", "Reflectance", "_", "Time", "label")
    cloud = read_points(saved(tmp_path / "b.bin", seven), reading=Reading(columns=names))
    np.testing.assert_array_equal(cloud.features[:, 0], points[:, 3])
    assert cloud.labels.tolist() == (points[:, 4] % 3).tolist()
    np.save(tmp_path / "c.npy", room())
    coloured = read_points(tmp_path / "c.npy", reading=Reading(columns=("sunrgbd",)))
    np.testing.assert_array_equal(coloured.features, room()[:, 3:])


def test_named_columns_are_plausible(tmp_path: Path):
    for columns, points, message in (
        ("kitti", nuscenes(), r"column intensity .*holds numbers from -"),
        ("x,y,z,intensity,ring", rotating()[:, [0, 1, 2, 3, 0]], "column ring"),
        ("x,y,z,red,green,blue", room() * 300, "column red .*holds numbers from .* to 3"),
        ("x,y,z,label", rotating(), "column label .*not whole"),
        ("x,y,z,intensity", rotating() * [1e9, 1, 1, 1], "column x "),
        ("x,y,z,a,b", rotating()[:999], "not a whole number of 20-byte points .*truncated"),
    ):
        path = saved(tmp_path / "a.bin", points)
        with pytest.raises(FileError, match=message):
            read_points(path, reading=Reading(columns=tuple(columns.split(","))))
    for columns, message in (
        ("livox", "none of kitti, nuscenes, scannet, sunrgbd"),
        ("x,y,intensity", "x, y and z"),
        ("x,y,z,intensity,remission", "intensity occurs twice"),
        ("x,y,z,", "must be names"),
    ):
        with pytest.raises(ValueError, match=message):
            Reading(columns=tuple(columns.split(",")))


@pytest.mark.parametrize("count", COUNTS)
def test_the_number_of_columns_is_told(count: int):
    rng = np.random.default_rng(count)
    rows = rng.normal(np.arange(count) * 2.0, 1, (3000, count))
    assert likely_columns(rows.reshape(-1)) == count
    assert not is_contradicted(rows.reshape(-1), count)
    others = [k for k in COUNTS if k % count and count % k]  # not half of them, either
    assert all(is_contradicted(rows.reshape(-1), k) for k in others)
    assert likely_columns(rng.normal(size=3000 * count)) is None
