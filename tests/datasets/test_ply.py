from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import trimesh

from pcnn.datasets.readers.ply import read_ply
from pcnn.datasets.readers.points import read_points

HEADER = """ply
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
    head = HEADER.format(format=format, n=len(ROWS)).encode()
    if format == "ascii":
        rows = "\n".join(" ".join(map(str, row)) for row in ROWS)
        return head + f"35.0\n{rows}\n3 0 1 1\n".encode()
    order = "<" if "little" in format else ">"
    body = struct.pack(f"{order}f", 35.0)
    body += b"".join(struct.pack(f"{order}ffdBBBfi", *row) for row in ROWS)
    return head + body + struct.pack(f"{order}Biii", 3, 0, 1, 1)


FORMATS = ("ascii", "binary_little_endian", "binary_big_endian")


@pytest.mark.parametrize("crlf", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_three_formats_read_alike(tmp_path: Path, format: str, crlf: bool):
    data = ply(format)
    if crlf:
        at = data.index(b"end_header\n") + len(b"end_header\n")
        data = data[:at].replace(b"\n", b"\r\n") + data[at:]
    path = tmp_path / "cloud.ply"
    path.write_bytes(data)
    cloud = read_points(path)
    assert cloud.points.tolist() == [[0.5, -1.0, 2.25], [1.5, 0.0, -2.0]]
    np.testing.assert_allclose(
        cloud.features, [[0.5, 1.0, 0.0, 0.2], [0.25, 0.0, 1.0, 0.4]], rtol=1e-6
    )
    assert cloud.labels is not None
    assert cloud.labels.tolist() == [3, -1]
    assert cloud.name == "cloud"


@pytest.mark.parametrize("encoding", ["ascii", "binary"])
def test_a_file_of_another_program(tmp_path: Path, encoding: str):
    points = np.random.default_rng(0).normal(size=(57, 3)).astype(np.float32)
    path = tmp_path / "trimesh.ply"
    mesh = trimesh.Trimesh(points, np.arange(57).reshape(19, 3), process=False)
    path.write_bytes(trimesh.exchange.ply.export_ply(mesh, encoding=encoding))
    np.testing.assert_allclose(read_points(path).points, points, atol=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_no_vertex_at_all(tmp_path: Path, format: str):
    path = tmp_path / "empty.ply"
    axes = "".join(f"property float {axis}\n" for axis in "xyz")
    path.write_text(f"ply\nformat {format} 1.0\nelement vertex 0\n{axes}end_header\n")
    assert read_points(path).points.shape == (0, 3)


def edited(old: str, new: str, format: str = "ascii") -> bytes:
    assert old.encode() in ply(format)
    return ply(format).replace(old.encode(), new.encode(), 1)


BROKEN = {
    "no magic": (edited("ply\n", "plx\n"), "first line"),
    "no end": (edited("end_header", "end-header"), "no end_header"),
    "no format": (edited("format ascii 1.0\n", ""), "no format line"),
    "other format": (edited("ascii", "utf8"), "format line"),
    "other version": (edited("ascii 1.0", "ascii 2.0"), "format line"),
    "negative count": (edited("vertex 2", "vertex -2"), "bad element line"),
    "no vertex": (edited("element vertex", "element point"), "must be called vertex"),
    "unknown type": (edited("property double z", "property quad z"), "bad property line"),
    "twice": (edited("property uchar red", "property uchar blue"), "blue occurs twice"),
    "no z": (edited("property double z", "property double w"), "float property z"),
    "integer x": (edited("property float x", "property int x"), "float property x"),
    "stray line": (edited("comment made by hand", "made by hand"), "unexpected header line"),
    "list": (edited("property uchar red", "property list uchar int red"), "list property"),
    "truncated text": (
        ply("ascii")[: ply("ascii").index(b"1.5 0.0")],
        "truncated: .* 2 points",
    ),
    "short row": (edited("0.5 -1.0 2.25", "0.5 -1.0"), r"line \d+: want 8 numbers, found 7"),
    "no number": (edited("0.5 -1.0 2.25", "0.5 -1.0 abc"), "z must be a number"),
    "no whole number": (edited("0.5 3\n", "0.5 3.5\n"), "label must be a number"),
    "beyond the type": (edited("255 0 51", "256 0 51"), "red must be a number"),
    "truncated bytes": (ply("binary_little_endian")[:-30], "truncated: 2 vertices need"),
    "not ascii": (edited("comment made", "comment mäde"), "not ascii text"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file_names_file_and_rule(tmp_path: Path, case: str):
    data, rule = BROKEN[case]
    path = tmp_path / "bad.ply"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"bad\.ply: .*" + rule):
        read_points(path)


@pytest.mark.parametrize("format", FORMATS)
def test_trailing_data_that_nothing_announces(tmp_path: Path, format: str):
    path = tmp_path / "long.ply"
    data = ply(format).replace(b"element face 1\nproperty list uchar int vertex_indices\n", b"")
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"after the last vertex|file has 3 lines"):
        read_ply(path)
