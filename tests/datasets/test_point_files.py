"""Clouds and labels from files of every format: values, channels by name, and broken files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import trimesh
from pcnn.datasets.readers.pcd import read_pcd
from pcnn.datasets.readers.ply import read_ply, write_ply
from pcnn.datasets.readers.points import label_source, read_labels

from pcnn.datasets.readers.clouds import Reading, read_points
from pcnn.datasets.readers.columns import find_name, meant
from pcnn.datasets.readers.label_files import read_label_file, write_label_file
from pcnn.errors import FileError
from pcnn.files.whole_file import whole_file
from tests.datasets.clouds import scan
from tests.datasets.las_files import write_las

COLOURS = ("red", "green", "blue")


def refused(path: Path, words: str, reading: Reading | None = None) -> None:
    """Reading the file raises an error that names it, and the rule."""
    with pytest.raises(FileError, match=words) as error:
        read_points(path, reading=reading or Reading())
    assert error.value.path == path
    assert str(error.value) == f"{path}: {error.value.rule}"


def test_bin_and_npy(tmp_path: Path):
    points = scan(33)
    points.tofile(tmp_path / "a.bin")
    cloud = read_points(tmp_path / "a.bin")
    np.testing.assert_array_equal(cloud.points, points[:, :3])
    np.testing.assert_array_equal(cloud.features, points[:, 3:])
    assert cloud.labels is None
    assert cloud.point_index.tolist() == list(range(33))
    for columns, dtype in ((3, "f4"), (4, "f8"), (6, "i2")):
        values = (np.arange(7 * columns).reshape(7, columns) - 5).astype(dtype)
        np.save(tmp_path / "a.npy", values)
        cloud = read_points(tmp_path / "a.npy")
        np.testing.assert_array_equal(cloud.points, values[:, :3])
        np.testing.assert_array_equal(cloud.features, values[:, 3:])
    named = np.zeros(3, dtype=[(n, "f4") for n in ("X", "Y", "Z", "Intensity")])
    named["X"], named["Intensity"] = [1, 2, 3], 0.5
    np.save(tmp_path / "a.npy", named)
    cloud = read_points(tmp_path / "a.npy")
    assert cloud.points[:, 0].tolist() == [1, 2, 3]
    assert cloud.features.tolist() == [[0.5]] * 3


def test_a_file_may_hold_no_point(tmp_path: Path):
    (tmp_path / "a.bin").touch()
    np.save(tmp_path / "a.npy", np.empty((0, 4)))
    axes = "".join(f"property float {axis}\n" for axis in "xyz")
    for format in PLY_FORMATS:
        header = f"ply\nformat {format} 1.0\nelement vertex 0\n{axes}end_header\n"
        (tmp_path / f"{format}.ply").write_text(header)
    for path in tmp_path.iterdir():
        assert read_points(path).points.shape == (0, 3), path


@pytest.mark.parametrize("suffix", ["bin", "npy"])
@pytest.mark.parametrize(("value", "column"), [(np.nan, 0), (np.inf, 2), (-np.inf, 3)])
def test_missing_returns_are_left_out(tmp_path: Path, suffix: str, value: float, column: int):
    def save(values: np.ndarray) -> None:
        values.tofile(path) if suffix == "bin" else np.save(path, values)

    points, path = scan(9), tmp_path / f"a.{suffix}"
    points[4, column] = value
    points[7, :3] = 0
    save(points)
    cloud = read_points(path)
    assert cloud.point_index.tolist() == [0, 1, 2, 3, 5, 6, 8]
    assert (cloud.n_points, cloud.n_points_total) == (7, 9)
    np.testing.assert_array_equal(cloud.features, points[cloud.point_index.numpy(), 3:])
    refused(path, rf"a\.{suffix}: 2 of 9 points .* point 4; .*--strict", Reading(strict=True))
    save(np.full((5, 4), np.nan, dtype=np.float32))
    refused(path, "all 5 points are missing returns")


def test_other_units_become_metres(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.array([[5e9, 1000, 2000], [5e9 + 1500, 0, 0]]))
    cloud = read_points(tmp_path / "a.npy", reading=Reading(scale=0.001, centred=True))
    np.testing.assert_allclose((cloud.points[1] - cloud.points[0]).tolist(), [1.5, -1, -2])
    np.testing.assert_allclose(cloud.points[0].numpy() + cloud.origin, [5e6, 1, 2])


@pytest.mark.parametrize("suffix", ["npy", "ply", "pcd"])
def test_coordinates_that_float32_would_move(tmp_path: Path, suffix: str):
    path = tmp_path / f"a.{suffix}"

    def write(x: float) -> None:
        rows = np.array([[x, 1.0, 2.0], [x + 0.05, 1.0, 2.0]])
        table = rows.reshape(-1).view([(axis, "<f8") for axis in "xyz"])
        if suffix == "npy":
            np.save(path, rows)
        elif suffix == "ply":
            write_ply(path, table)
        else:
            pcd(path, "x y z", "F F F", table)

    write(1234.56)
    assert read_points(path).points[1, 0] == np.float32(1234.61)
    write(5_412_345.67)  # a northing: 5 cm apart would become nothing or half a metre
    refused(path, rf"a\.{suffix}: coordinates of up to .* subtract one")
    write(1e300)
    refused(path, rf"a\.{suffix}")


def test_broken_bin_and_npy_files_are_named(tmp_path: Path):
    path = tmp_path / "a.bin"
    path.write_bytes(scan(5).tobytes()[:-3])
    refused(path, r"a\.bin: 77 bytes are not a whole number of 16-byte")
    path = tmp_path / "a.npy"
    np.save(path, scan(5))
    path.write_bytes(path.read_bytes()[:-3])
    refused(path, r"a\.npy: not a whole \.npy file")
    for values in (np.zeros((3, 2)), np.zeros(3), np.zeros((3, 3), dtype="U1")):
        np.save(path, values)
        refused(path, r"a\.npy: points must be numbers \[N, 3 or more\]")
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    refused(path, "Python objects")
    with pytest.raises(FileNotFoundError, match=r"none\.bin"):
        read_points(tmp_path / "none.bin")
    (tmp_path / "a.e57").touch()
    refused(tmp_path / "a.e57", r"a cloud ends in \.bin, .*\.ply, \.las, \.laz")


def test_labels_beside_a_cloud(tmp_path: Path):
    words = np.array([40, 10 | 7 << 16, 0xFFFFFFFF], dtype=np.uint32)
    words.tofile(tmp_path / "a.label")
    assert read_labels(tmp_path / "a.label", 3).tolist() == [40, 10, -1]
    assert read_label_file(tmp_path / "a.label", 3).tolist() == words.tolist()
    with pytest.raises(FileError, match=r"a\.label: 3 labels for a scan of 4 points"):
        read_labels(tmp_path / "a.label", 4)
    (tmp_path / "a.label").write_bytes(b"12345")
    with pytest.raises(FileError, match=r"a\.label: 5 bytes are no whole number"):
        read_labels(tmp_path / "a.label", 1)
    path = tmp_path / "a_label.npy"
    np.save(path, np.array([1, -1, 3], dtype=np.int16))
    assert read_labels(path, 3).tolist() == [1, -1, 3]
    with pytest.raises(FileError, match=r"a_label\.npy: labels must be 4 integers"):
        read_labels(path, 4)
    np.save(path, np.array([1.0, 2.0]))
    with pytest.raises(FileError, match="integers, found float64"):
        read_labels(path, 2)
    cloud = tmp_path / "a.b.npy"
    assert label_source(cloud) is None
    (tmp_path / "a.b.label").touch()
    assert label_source(cloud) == tmp_path / "a.b.label"
    (tmp_path / "a.b_label.npy").touch()
    with pytest.raises(FileError, match="keep one"):
        label_source(cloud)


def test_files_are_written_whole(tmp_path: Path):
    path = tmp_path / "predictions" / "000000.label"
    write_label_file(path, np.array([10, 0, 259]))
    assert read_label_file(path, 3).tolist() == [10, 0, 259]
    with pytest.raises(ValueError, match="fit 16 bits"):
        write_label_file(path, np.array([-1]))

    def write() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        write()
    assert read_label_file(path, 3).tolist() == [10, 0, 259]
    assert list(path.parent.iterdir()) == [path]


# -- channels


def test_any_format_gives_intensity_by_name(tmp_path: Path):
    write_las(tmp_path / "a.las", 4)
    kinds = [("red", "u1"), ("X", "f8"), ("Y", "f8"), ("Z", "f8"), ("scalar_Intensity", "f4")]
    vertices = np.zeros(4, dtype=[*kinds, ("nx", "f4")])
    vertices["X"], vertices["scalar_Intensity"] = 1, np.arange(4) * 655 / 65535
    write_ply(tmp_path / "b.ply", vertices)
    rows = np.zeros(4, dtype=[(n, "f4") for n in ("i", "x", "y", "z")])
    rows["x"], rows["i"] = 1, vertices["scalar_Intensity"]
    pcd(tmp_path / "c.pcd", "Reflectivity X Y Z", "F F F F", rows)
    points = np.column_stack([np.ones((4, 3)), rows["i"]]).astype("<f4")
    points.tofile(tmp_path / "d.bin")
    np.save(tmp_path / "e.npy", points)
    for path in sorted(tmp_path.iterdir()):
        cloud = read_points(path, reading=Reading(("intensity",), centred=True))
        np.testing.assert_allclose(cloud.features[:, 0], rows["i"], rtol=1e-6, err_msg=path.name)


def test_a_name_in_the_file_comes_before_what_means_the_same():
    names = ("x", "Reflectivity", "intensity", "R", "NIR")
    for asked, found in {
        "intensity": "intensity",
        "reflectivity": "Reflectivity",
        "remission": "intensity",
        "red": "R",
        "nir": "NIR",
        "green": None,
    }.items():
        assert find_name(asked, names) == found, asked
    assert (meant("Remission"), meant("Diffuse_Red"), meant("NIR")) == ("intensity", "red", "nir")


def test_a_channel_that_is_not_there(tmp_path: Path):
    path = tmp_path / "a.las"
    write_las(path, 4, point_format=6)
    named = ("intensity", *COLOURS)
    words = r"a\.las: no channel 'red'; the file has X, Y, Z, in"
    refused(path, words, Reading(named, centred=True))
    fill = {"Red": 0.5, "green": 0, "b": 1, "intensity": 9}
    cloud = read_points(path, reading=Reading(named, centred=True, fill=fill))
    np.testing.assert_allclose(cloud.features[2], [2 * 655 / 65535, 0.5, 0, 1], rtol=1e-6)
    known = Reading(fill={"red": 0.5, "Blue": 0.5})  # a number that is given counts for all names
    assert known.filled({"R": 0.0, "intensity": 1.0}) == {"Blue": 0.5, "R": 0.0, "intensity": 1.0}
    for arguments, words in (
        ({"fill": {"red": float("nan")}}, "fill: red must be a finite number"),
        ({"scale": 0}, "scale must be a number above 0"),
        ({"channels": ("red", "red")}, "differ"),
        ({"intensity_max": 0.0}, "intensity_max"),
    ):
        with pytest.raises(ValueError, match=words):
            Reading(**arguments)


# -- PCD


def pcd(path: Path, fields: str, types: str, rows: np.ndarray, kind: str = "binary") -> Path:
    sizes = " ".join(str(rows.dtype[name].itemsize) for name in rows.dtype.names or ())
    head = (
        f"VERSION 0.7\nFIELDS {fields}\nSIZE {sizes}\nTYPE {types}\nWIDTH {len(rows)}\nHEIGHT 1\n"
    )
    body = rows.tobytes()
    if kind == "ascii":
        body = "\n".join(" ".join(repr(v) for v in row) for row in rows.tolist()).encode()
    path.write_bytes(f"{head}POINTS {len(rows)}\nDATA {kind}\n".encode() + body)
    return path


RGB = np.array([[255, 51, 0], [1, 2, 3], [0, 0, 0]], dtype=np.uint8)


@pytest.mark.parametrize(
    ("kind", "field", "number", "alpha"),
    [("binary", "rgb", "f4", 0), ("ascii", "RGBA", "u4", 128), ("binary", "rgba", "u4", 128)],
)
def test_packed_colours_of_pcd_files(
    tmp_path: Path, kind: str, field: str, number: str, alpha: int
):
    words = np.array([alpha << 24 | int(r) << 16 | int(g) << 8 | int(b) for r, g, b in RGB])
    rows = np.zeros(3, dtype=[("x", "f4"), ("y", "f4"), ("z", "f4"), ("c", number), ("i", "f4")])
    rows["x"], rows["i"] = [1, 2, 3], [0.5, 0.25, 0.0]
    rows["c"] = words.astype("<u4").view(f"<{number}")
    types = f"F F F {number[0].upper()} F"
    cloud = read_points(pcd(tmp_path / "a.pcd", f"x y z {field} Intensity", types, rows, kind))
    np.testing.assert_array_equal(cloud.features[:, 0], rows["i"])
    np.testing.assert_allclose(cloud.features[:, 1:], RGB / 255, rtol=1e-6)


POINTS = np.array([[1, 2, 3, 0.5], [4, 5, 6, 0.25], [-7, 8, 9, 0.125]], dtype="<f4")
PCD = """# .PCD v0.7
VERSION 0.7
FIELDS x y z intensity
SIZE 4 4 4 4
TYPE F F F F
COUNT 1 1 1 1
WIDTH 3
HEIGHT 1
VIEWPOINT 0 0 0 1 0 0 0
POINTS 3
DATA {}
"""


def pcd_file(path: Path, kind: str, body: bytes, header: str = PCD) -> Path:
    path.write_bytes(header.format(kind).encode() + body)
    return path


def packed(literal: bytes, full: int) -> bytes:
    return struct.pack("<II", len(literal), full) + literal


@pytest.mark.parametrize("kind", ["ascii", "binary", "binary_compressed"])
def test_points_of_pcd_files(kind: str, tmp_path: Path):
    planes = np.ascontiguousarray(POINTS.T).tobytes()
    # LZF without any compression: runs of at most 32 bytes as they are
    runs = [planes[at : at + 32] for at in range(0, len(planes), 32)]
    body = {
        "ascii": b"\n".join(b" ".join(b"%r" % float(v) for v in row) for row in POINTS),
        "binary": POINTS.tobytes(),
        "binary_compressed": packed(b"".join(bytes([len(r) - 1]) + r for r in runs), len(planes)),
    }[kind]
    cloud = read_points(pcd_file(tmp_path / "a.pcd", kind, body))
    np.testing.assert_array_equal(cloud.points.numpy(), POINTS[:, :3])
    np.testing.assert_array_equal(cloud.features.numpy(), POINTS[:, 3:])


def test_back_references_and_padding_of_pcd_files(tmp_path: Path):
    # 48 zero bytes: one as it is, then a reference of 47 to the byte before
    body = packed(bytes([0, 0, (7 << 5) | 0, 47 - 9, 0]), 48)
    points = read_pcd(pcd_file(tmp_path / "a.pcd", "binary_compressed", body))
    assert points["x"].tolist() == [0, 0, 0]
    header = PCD.replace("x y z intensity", "x y z _").replace("1 1 1 1", "1 1 1 4")
    header = header.replace("SIZE 4 4 4 4", "SIZE 4 4 4 1").replace("F F F F", "F F F U")
    cloud = read_points(pcd_file(tmp_path / "a.pcd", "binary", POINTS.tobytes(), header))
    np.testing.assert_array_equal(cloud.points.numpy(), POINTS[:, :3])
    assert cloud.features.shape == (3, 0)


def test_broken_pcd_files_are_named(tmp_path: Path):
    whole = POINTS.tobytes()
    for header, kind, body, words in (
        ("no pcd at all", "", b"", "no DATA line"),
        (PCD, "binary", whole[:-1], "truncated"),
        (PCD, "ascii", b"1 2 3\n", "3 points of 4 numbers"),
        (PCD, "ascii", b"1 2 3 a\n1 2 3 4\n1 2 3 4\n", "intensity"),
        (PCD, "zip", b"", "DATA must be"),
        (PCD.replace("FIELDS x", "FIELDS w"), "binary", whole, "x, y and z"),
        (PCD.replace("SIZE 4", "SIZE 3"), "binary", whole, "unusable"),
        (PCD, "binary_compressed", packed(b"\xff\x00", 48), "torn"),
    ):
        refused(pcd_file(tmp_path / "bad.pcd", kind, body, header), f"bad.pcd.*{words}")


# -- PLY

PLY_FORMATS = ("ascii", "binary_little_endian", "binary_big_endian")
PLY = """ply
format {format} 1.0
comment made by hand
element camera 1
property float focal
element vertex {n}
property float x
property float y
property double z
property uchar red
property uchar green
property uchar blue
property float intensity
property int label
element face 1
property list uchar int vertex_indices
end_header
"""
ROWS = [(0.5, -1.0, 2.25, 255, 0, 51, 0.5, 3), (1.5, 0.0, -2.0, 0, 255, 102, 0.25, -1)]


def ply(format: str) -> bytes:
    head = PLY.format(format=format, n=len(ROWS)).encode()
    if format == "ascii":
        rows = "\n".join(" ".join(map(str, row)) for row in ROWS)
        return head + f"35.0\n{rows}\n3 0 1 1\n".encode()
    order = "<" if "little" in format else ">"
    body = struct.pack(f"{order}f", 35.0)
    body += b"".join(struct.pack(f"{order}ffdBBBfi", *row) for row in ROWS)
    return head + body + struct.pack(f"{order}Biii", 3, 0, 1, 1)


@pytest.mark.parametrize("format", PLY_FORMATS)
def test_ply_files(tmp_path: Path, format: str):
    data, path = ply(format), tmp_path / "cloud.ply"
    at = data.index(b"end_header\n") + len(b"end_header\n")
    for text in (data, data[:at].replace(b"\n", b"\r\n") + data[at:]):
        path.write_bytes(text)
        cloud = read_points(path)
        assert cloud.points.tolist() == [[0.5, -1.0, 2.25], [1.5, 0.0, -2.0]]
        np.testing.assert_allclose(
            cloud.features, [[0.5, 1.0, 0.0, 0.2], [0.25, 0.0, 1.0, 0.4]], rtol=1e-6
        )
        assert cloud.labels.tolist() == [3, -1]
        assert cloud.name == "cloud"
    # data that nothing announces
    path.write_bytes(data.replace(b"element face 1\nproperty list uchar int vertex_indices\n", b""))
    with pytest.raises(ValueError, match=r"after the last vertex|file has 3 lines"):
        read_ply(path)


@pytest.mark.parametrize("encoding", ["ascii", "binary"])
def test_a_ply_file_of_another_program(tmp_path: Path, encoding: str):
    points = np.random.default_rng(0).normal(size=(57, 3)).astype(np.float32)
    mesh = trimesh.Trimesh(points, np.arange(57).reshape(19, 3), process=False)
    path = tmp_path / "trimesh.ply"
    path.write_bytes(trimesh.exchange.ply.export_ply(mesh, encoding=encoding))
    np.testing.assert_allclose(read_points(path).points, points, atol=1e-5)


BROKEN_PLY = {
    # words of a file that are replaced: by what, and the rule
    "ply\n": ("plx\n", "first line"),
    "end_header": ("end-header", "no end_header"),
    "format ascii 1.0\n": ("", "no format line"),
    "ascii": ("utf8", "format line"),
    "ascii 1.0": ("ascii 2.0", "format line"),
    "vertex 2": ("vertex -2", "bad element line"),
    "element vertex": ("element point", "must be called vertex"),
    "property double z": ("property quad z", "bad property line"),
    "uchar red": ("uchar blue", "blue occurs twice"),
    "double z": ("double w", "float property z"),
    "property float x": ("property int x", "float property x"),
    "comment made by hand": ("made by hand", "unexpected header line"),
    "property uchar red": ("property list uchar int red", "list property"),
    "0.5 -1.0 2.25": ("0.5 -1.0", r"line \d+: want 8 numbers, found 7"),
    "-1.0 2.25": ("-1.0 abc", "z must be a number"),
    "0.5 3\n": ("0.5 3.5\n", "label must be a number"),
    "255 0 51": ("256 0 51", "red must be a number"),
    "comment made": ("comment mäde", "not ascii text"),
}


def test_broken_ply_files_are_named(tmp_path: Path):
    whole, path = ply("ascii"), tmp_path / "bad.ply"
    for old, (new, rule) in BROKEN_PLY.items():
        assert old.encode() in whole
        path.write_bytes(whole.replace(old.encode(), new.encode(), 1))
        refused(path, r"bad\.ply: .*" + rule)
    path.write_bytes(whole[: whole.index(b"1.5 0.0")])
    refused(path, "truncated: .* 2 points")
    path.write_bytes(ply("binary_little_endian")[:-30])
    refused(path, "truncated: 2 vertices need")
