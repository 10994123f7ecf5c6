"""Every format gives the same points, whole and in parts, and refuses its damages by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcnn.datasets.label_files import label_source
from pcnn.datasets.readers.clouds import Reading, open_parts, read_points
from pcnn.datasets.readers.columns import find_name, is_mixed
from pcnn.errors import FileError
from tests.datasets.damages import DAMAGES, write_cloud
from tests.datasets.las_files import CORNER, places, write_las
from tests.datasets.point_files import (
    PLAIN,
    N,
    lines_of,
    nuscenes,
    pcd_bytes,
    ply_bytes,
    refused,
    room,
    rotating,
    saved,
    table,
)

COLORS = ("red", "green", "blue")
LABELLED = np.column_stack([rotating(), np.arange(N) % 7]).astype(np.float32)
NAMES = ("x", "y", "z", "intensity", "label")
GREEN = Reading(columns=("x", "y", "z", *COLORS))
#: File, what writes it, and how it is read; all hold the points of `rotating`.
SCANS: dict[str, tuple[str, Any, Reading]] = {
    "bin": ("a.bin", rotating(), PLAIN),
    "bin with labels": ("a.bin", LABELLED, Reading(columns=NAMES)),
    "npy": ("a.npy", rotating(), PLAIN),
    "npy of big doubles": ("a.npy", rotating().astype(">f8"), PLAIN),
    "npy with labels": ("a.npy", LABELLED, Reading(columns=NAMES)),
    "npy of fields": ("a.npy", table(), PLAIN),
    "npy of Fortran": ("a.npy", np.asfortranarray(rotating()), PLAIN),
    **{
        f"ply {kind}": ("a.ply", ply_bytes(kind, table()), PLAIN)
        for kind in ("ascii", "binary_little_endian", "binary_big_endian")
    },
    **{f"pcd {kind}": ("a.PCD", pcd_bytes(kind, table()), PLAIN) for kind in ("ascii", "binary")},
    "txt": ("a.txt", lines_of(rotating(), "// by hand\n"), PLAIN),
    "csv": ("a.csv", lines_of(LABELLED, "\ufeffX,Y,Z,Reflectance,Class\n", ","), PLAIN),
    "xyz": (
        "a.xyz",
        lines_of(LABELLED[:, [4, 0, 1, 2, 3]], "# label;x;y;z;i\n", ";"),
        Reading(("i",)),
    ),
}
LABELS_OF = ("bin with", "npy with", "npy of fields", "ply", "pcd", "csv", "xyz")


@pytest.mark.parametrize("name", SCANS)
def test_formats_hold_the_same_points_whole_and_in_parts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write, reading = SCANS[name]
    path = saved(tmp_path / file, write)
    cloud = read_points(path, reading=reading)
    np.testing.assert_array_equal(cloud.points, rotating()[:, :3])
    np.testing.assert_array_equal(cloud.features, rotating()[:, 3:])
    labelled = name.startswith(LABELS_OF)
    assert (cloud.labels is not None) == labelled
    assert label_source(path, reading.columns) == (path if labelled else None)
    monkeypatch.setattr("pcnn.datasets.readers.clouds.PART", 64)
    parted = open_parts(path, reading)
    assert [len(part) for part in parted] == [64, 64, 64, 64, N - 256]
    rows = np.concatenate([part.rows for part in parted])
    np.testing.assert_array_equal(rows, cloud.point_index)
    part = parted.whole()
    np.testing.assert_array_equal(part.rows, cloud.point_index)
    np.testing.assert_array_equal(part.places.astype(np.float32), cloud.points)
    np.testing.assert_array_equal(part.channels, cloud.features)


def test_missing_returns_are_left_out(tmp_path: Path) -> None:
    for value, column in ((np.nan, 0), (np.inf, 2), (-np.inf, 3)):
        for suffix in ("bin", "npy"):
            points = rotating(9)
            points[4, column], points[7, :3] = value, 0
            path = saved(tmp_path / f"a.{suffix}", points)
            cloud = read_points(path)
            assert cloud.point_index.tolist() == [0, 1, 2, 3, 5, 6, 8]
            assert (cloud.n_points, cloud.n_points_total) == (7, 9)
            np.testing.assert_array_equal(cloud.features, points[cloud.point_index.numpy(), 3:])
            refused(saved(path, np.full((5, 4), np.nan, np.float32)))
    huge = rotating(9).astype(float)
    huge[:, 3] = 3e38
    np.save(tmp_path / "a.npy", huge * [1, 1, 1, 1e3])
    refused(tmp_path / "a.npy")


def test_scale_and_origin(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npy", np.array([[5e9, 1000, 2000], [5e9 + 1500, 0, 0]]))
    cloud = read_points(path, reading=Reading(scale=0.001, centred=True))
    np.testing.assert_allclose((cloud.points[1] - cloud.points[0]).tolist(), [1.5, -1, -2])
    np.testing.assert_allclose(cloud.points[0].numpy() + cloud.origin, [5e6, 1, 2])
    near, far = (saved(tmp_path / f"{n}.npy", places(9) - n * CORNER) for n in (1, 0))
    assert read_points(near, reading=Reading(centred=True)).origin == (0.0, 0.0, 0.0)
    found = read_points(far, reading=Reading(centred=True))
    np.testing.assert_allclose(found.points.double().numpy() + found.origin, places(9), atol=5e-6)
    refused(far)  # float32 would move the points


@pytest.mark.parametrize(
    ("full", "kinds"), [(1, "f4 f8"), (255, "u1 i4 u2 i8 f4 f8"), (65535, "u2 i4 i8 f8")]
)
def test_colours_of_all_types_are_shares(full: int, kinds: str, tmp_path: Path) -> None:
    shares = np.array([[0.2, 0, 1], [0.6, 0, 0]])  # full is what one channel holds, for all
    for kind in kinds.split():
        rows = np.ones(2, [(name, "<f4") for name in "xyz"] + [(name, kind) for name in COLORS])
        for name, column in zip(COLORS, shares.T, strict=True):
            rows[name] = np.round(column * full, 9)
        cloud = read_points(saved(tmp_path / "a.npy", rows))
        np.testing.assert_allclose(cloud.features, shares, rtol=1e-6, err_msg=kind)


def test_channels_by_name(tmp_path: Path) -> None:
    names = ("x", "Reflectivity", "intensity", "R", "NIR")
    asked = {"reflectivity": "Reflectivity", "remission": "intensity", "red": "R", "green": None}
    assert {one: find_name(one, names) for one in asked} == asked
    write_las(tmp_path / "a.las", 4, point_format=6)
    named = Reading(("intensity", *COLORS), centred=True)
    with pytest.raises(FileError, match=r"no channel 'red'; the file has intensity, .*gps_time"):
        read_points(tmp_path / "a.las", reading=named)
    fill = {"Red": 0.5, "green": 0, "b": 1, "intensity": 9}
    filled = Reading(named.channels, centred=True, fill=fill)
    cloud = read_points(tmp_path / "a.las", reading=filled)
    np.testing.assert_allclose(cloud.features[2], [2 * 655 / 65535, 0.5, 0, 1], rtol=1e-6)
    known = Reading(fill={"red": 0.5, "Blue": 0.5})  # a number that is given counts for all names
    assert known.filled({"R": 0.0, "intensity": 1.0}) == {"Blue": 0.5, "R": 0.0, "intensity": 1.0}
    wrong: tuple[dict[str, Any], ...] = (
        {"fill": {"red": float("nan")}},
        {"scale": 0},
        {"channels": ("red", "red")},
        {"intensity_max": 0.0},
        *({"columns": names.split(",")} for names in ("livox", "x,y,i", "x,y,z,r,red", "x,y,z,")),
    )
    for arguments in wrong:
        with pytest.raises(ValueError, match=next(iter(arguments))):
            Reading(**arguments)


# -- bare numbers


def test_odd_scans_of_kitti_are_read_without_options(tmp_path: Path) -> None:
    scan, rng = rotating(4000), np.random.default_rng(1)
    some = rng.random(len(scan)) < 0.6
    two = scan[np.argsort(scan[:, 2])].reshape(2, -1, 4)[::-1].swapaxes(0, 1).reshape(-1, 4)
    for name, values in {
        "whole": scan,
        "shuffled": scan[rng.permutation(len(scan))],
        "one": scan[:1],
        "without remission": scan * [1, 1, 1, 0],
        "remission in bytes": scan * [1, 1, 1, 255],
        "zeros": np.where(some[:, None], 0, scan),
        "nan": np.where(some[:, None], np.nan, scan),
        "firings of two lasers": two,
        "a room": room(4000)[:, :4] / [1, 1, 1, 255],
        "all the same": np.ones((300, 4)),
        "flat": scan * [1, 1, 0, 1],
    }.items():
        points = values.astype(np.float32)
        cloud = read_points(saved(tmp_path / "a.bin", points))
        kept = points[cloud.point_index.numpy()]
        np.testing.assert_array_equal(cloud.points, kept[:, :3], err_msg=name)
        np.testing.assert_array_equal(cloud.features, kept[:, 3:], err_msg=name)
        assert cloud.n_points_total == len(points), name


def test_five_numbers_are_never_read_as_four(tmp_path: Path) -> None:
    high = nuscenes(4000) + np.array([100, 100, 100, 0, 0])  # no number is below zero
    six = np.column_stack([room(4000)[:, :3] + 1, room(4000)[:, 3:]])
    for rows in (400, 3996, 4000):
        for points, width in ((nuscenes(4000), 5), (high, 5), (six, 6)):
            path = saved(tmp_path / f"{rows}.bin", points[:rows])
            refused(path)
            columns = {5: ("nuscenes",), 6: ("scannet",)}[width]
            cloud = read_points(path, reading=Reading(columns=columns))
            np.testing.assert_array_equal(cloud.points, points[:rows, :3].astype(np.float32))
        more = np.column_stack([nuscenes(4000), np.linspace(0.01, 0.1, 4000)])[:rows]
        for points in (rotating(4000)[:rows, :3], np.column_stack([more, more[:, :1]])):
            refused(saved(tmp_path / "a.bin", points))
    rng = np.random.default_rng(0)
    for width in (4, 5, 6):
        numbers = rng.normal(np.arange(width) * 2.0, 1, (3000, width)).reshape(-1)
        assert [is_mixed(numbers, other) for other in (4, 5, 6)] == [w != width for w in (4, 5, 6)]


def test_columns_by_name(tmp_path: Path) -> None:
    points = nuscenes()
    by_suffix = read_points(saved(tmp_path / "a.pcd.bin", points))
    np.testing.assert_allclose(by_suffix.features[:, 0], points[:, 3] / 255, rtol=1e-6)
    ringed = Reading(("ring", "intensity"), columns=("nuscenes",))
    cloud = read_points(saved(tmp_path / "a.bin", points), reading=ringed)
    np.testing.assert_allclose(cloud.features, points[:, [4, 3]] / [1, 255], rtol=1e-6)
    seven = np.column_stack([points, points[:, 4] * 0.001, points[:, 4] % 3])
    names = ("X", "Y", "Z", "Reflectance", "_", "Time", "label")
    cloud = read_points(saved(tmp_path / "b.bin", seven), reading=Reading(columns=names))
    np.testing.assert_array_equal(cloud.features[:, 0], points[:, 3])
    assert cloud.labels is not None
    assert cloud.labels.tolist() == (points[:, 4] % 3).tolist()
    late = room()  # numbers of colours tell in the last part alone that they are bytes
    late[:-5, 3:] = late[:-5, 3:] > 100
    coloured = read_points(saved(tmp_path / "c.npy", late), reading=GREEN)
    np.testing.assert_allclose(coloured.features, late[:, 3:] / 255, rtol=1e-6)
    for columns, numbers in (
        ("kitti", nuscenes()),
        ("x,y,z,red,green,blue", room() * 300),
        ("x,y,z,label", rotating()),
        ("x,y,z,intensity", rotating() * [1e9, 1, 1, 1]),
        ("x,y,z,a,b", rotating()[:299]),
    ):
        path = saved(tmp_path / "a.bin", numbers)
        refused(path, Reading(columns=tuple(columns.split(","))))


# -- damages


PCD = pcd_bytes("binary", table()[:3])
HEAD = PCD[: PCD.index(b"DATA binary\n")]


def without(old: str, new: str = "") -> bytes:
    """A PLY file with other words."""
    return ply_bytes("ascii", table()[:2]).replace(old.encode(), new.encode(), 1)


@pytest.mark.parametrize(
    ("file", "contents"),
    [
        ("a.bin", [b""]),
        ("a.txt", [b"", b"# x y z\n", b"1 2\n3 4", b"1 2 3\n1 2 a", b"1 2 3\n1 2", b"\xff\xfe"]),
        ("a.csv", [b"1,5;2,5;3,5", b"1,5\t2,5\t3,5", b"x y z\n1 2 3 4", b"x,y,z,label\n1,2,3"]),
        ("a.npy", [b"", b"PK\3\4", b"\x93NUMPY\1\0\xff\xff" + b"[" * 9999]),
        (
            "a.ply",
            [
                *(without("ply\n", "plx\n"), without("element vertex", "element point")),
                *(without("float z", "quad z"), without("float y", "float x")),
                *(without("float x", "int x"), without("-1\n", "-1 7\n"), without("float z\n")),
                without("element vertex", "element camera 0\nelement vertex"),
            ],
        ),
        (
            "a.pcd",
            [
                *(b"no pcd at all", PCD + b"1", PCD.replace(b"WIDTH 3", b"WIDTH 4", 1)),
                PCD.replace(b"TYPE F", b"TYPE U", 1),
                HEAD + b"DATA ascii\n1 2 3 4 a\n1 2 3 4 5\n1 2 3 4 5\n",
                HEAD + b"DATA binary_compressed\n" + bytes(68),
            ],
        ),
        ("a.e57", [b"anything"]),
    ],
)
def test_damaged_files_are_refused_by_name(
    file: str, contents: list[bytes], tmp_path: Path
) -> None:
    for data in contents:
        refused(saved(tmp_path / file, data))


@pytest.mark.parametrize("suffix", DAMAGES)
def test_damages_that_claim_or_hang_are_refused_by_name(suffix: str, tmp_path: Path) -> None:
    for number, damage in enumerate(DAMAGES[suffix]):
        path = tmp_path / f"{number}.{suffix}"
        write_cloud(path)
        path.write_bytes(damage(path.read_bytes()))
        refused(path, Reading(centred=True))


def test_a_transposed_cloud_is_refused_by_its_shape(tmp_path: Path) -> None:
    wide = np.random.default_rng(0).random((6, 200))
    assert read_points(saved(tmp_path / "a.npy", wide[:3, :9])).n_points == 3
    for rows in (3, 6):
        with pytest.raises(FileError, match=rf"\[{rows}, 200\]"):
            read_points(saved(tmp_path / "a.npy", wide[:rows]))


def test_clouds_without_points(tmp_path: Path) -> None:
    saved(tmp_path / "a.npy", np.empty((0, 4), np.float32))
    for kind in ("ascii", "binary_little_endian"):
        axes = "".join(f"property float {axis}\n" for axis in "xyz")
        head = f"ply\nformat {kind} 1.0\nelement vertex 0\n{axes}end_header\n"
        (tmp_path / f"{kind}.ply").write_text(head)
    write_las(tmp_path / "a.laz", 0)
    for path in tmp_path.iterdir():
        assert read_points(path).points.shape == (0, 3), path
        assert len(open_parts(path, PLAIN).whole()) == 0, path


# -- PCD and PLY of others


def test_packed_colours(tmp_path: Path) -> None:
    rgb = np.array([[255, 51, 0], [1, 2, 3], [0, 0, 0]])
    for kind, field, number, alpha in (("binary", "rgb", "f4", 0), ("ascii", "RGBA", "u4", 128)):
        words = alpha << 24 | rgb[:, 0] << 16 | rgb[:, 1] << 8 | rgb[:, 2]
        rows = np.zeros(3, [*((n, "f4") for n in ("x", "y", "z", "Intensity")), (field, number)])
        rows["x"], rows["Intensity"] = [1, 2, 3], [0.5, 0.25, 0.0]
        rows[field] = words.astype("<u4").view(f"<{number}")
        cloud = read_points(saved(tmp_path / "a.pcd", pcd_bytes(kind, rows)))
        np.testing.assert_array_equal(cloud.features[:, 0], rows["Intensity"])
        np.testing.assert_allclose(cloud.features[:, 1:], rgb / 255, rtol=1e-6)


def test_padding_of_pcd_files(tmp_path: Path) -> None:
    padded = HEAD.decode().replace("Intensity label", "_").replace("SIZE 4 4 4 4 4", "SIZE 4 4 4 1")
    padded = padded.replace("F F F F I", "F F F U\nCOUNT 1 1 1 8") + "DATA binary\n"
    cloud = read_points(saved(tmp_path / "a.pcd", padded.encode() + table()[:3].tobytes()))
    np.testing.assert_array_equal(cloud.points, rotating()[:3, :3])
    assert cloud.features.shape == (3, 0)
