"""Small clouds in all formats, and ways in which each is damaged."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pcnn.files.whole_file import write_ply
from tests.datasets.las_files import write_las
from tests.datasets.point_files import pcd_bytes, saved

POINTS = 24

Damage = Callable[[bytes], bytes]


def put(place: int, kind: str, value: float) -> Damage:
    """Another number at a place."""

    def damage(data: bytes) -> bytes:
        changed = bytearray(data)
        struct.pack_into(f"<{kind}", changed, place, value)
        return bytes(changed)

    return damage


def swap(old: bytes, new: bytes) -> Damage:
    """Other words in a header."""

    def damage(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new, 1)

    return damage


def cut(end: int) -> Damage:
    """The file without its end, or only its begin."""
    return lambda data: data[:end]


def chunk(beyond: int, kind: str, value: int) -> Damage:
    """Another number behind the begin of the points, or of the chunk table (negative)."""

    def damage(data: bytes) -> bytes:
        (start,) = struct.unpack_from("<I", data, 96)
        (table,) = struct.unpack_from("<q", data, start)
        return put(start + beyond if beyond >= 0 else table - beyond, kind, value)(data)

    return damage


def archive(data: bytes) -> bytes:
    """An .npz file in place of an .npy file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("a.npy", data)
    return file.getvalue()


DAMAGES: dict[str, tuple[Damage, ...]] = {
    "bin": (
        cut(-7),
        lambda data: bytes(len(data)),
        lambda data: b"<html>not found</html>\n",
    ),
    "laz": (
        chunk(-4, "I", 0xFFFFFFFF),
        chunk(8 + 36 + 4, "I", 0xFFFFFFFF),  # a layer of 4 GiB: lazrs aborts
        cut(-9),
        chunk(0, "q", 1 << 62),
        lambda data: put(data.index(b"laszip") + 88, "H", 9999)(data),
    ),
    "npy": (
        swap(b"'shape': (24, 4)", b"'shape': (10**12"),
        archive,
        lambda data: pickle.dumps(print),
        lambda data: data + b"1",
        cut(-5),
    ),
    "las": (
        put(247, "Q", 0xFFFFFFFF),
        put(105, "H", 3),
        put(96, "I", 0xFFFFFFFF),
        cut(300),
        put(100, "I", 0xFFFFFFFF),
        put(104, "B", 99),
        put(131, "d", float("nan")),
        put(139, "d", 0.0),
        cut(-36),
    ),
    "ply": (
        swap(b"vertex 24", b"vertex 1000000000000"),
        swap(b"property float x", b"property list uchar int x"),
        cut(-3),
        lambda data: b"ply\n\xff\xfe\n",
    ),
    "pcd": (
        swap(b"POINTS 24", b"POINTS 1000000000000"),
        swap(b"DATA binary", b"DATA binary_compressed"),
        swap(b"SIZE 4 4 4 4", b"SIZE 4 4 4 5"),
        cut(-1),
    ),
}


def write_cloud(path: Path) -> None:
    if path.suffix in (".las", ".laz"):
        write_las(path, POINTS)
        return
    points = np.random.default_rng(0).random((POINTS, 4)).astype(np.float32)
    rows = points.reshape(-1).view([(name, "<f4") for name in ("x", "y", "z", "intensity")])
    if path.suffix == ".pcd":
        path.write_bytes(pcd_bytes("binary", rows))
    elif path.suffix == ".ply":
        write_ply(path, [rows], rows.dtype)
    else:
        saved(path, points)
