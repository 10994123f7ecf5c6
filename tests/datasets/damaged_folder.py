"""A folder of small clouds in all formats, some of them damaged, each in another way."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pcnn.files.whole_file import write_ply
from tests.datasets.las_files import CODES, write_las
from tests.datasets.point_files import pcd_bytes, saved

CLASSES = {
    "names": ["ground", "tree", "house"],
    "map": {2: "ground", 5: "tree", 6: "house"},
    "ignore": [1],
}
FORMATS = ("bin", "laz", "npy", "las", "ply", "pcd")
CLOUDS, POINTS = 30, 24
DAMAGED = tuple(n for n in range(CLOUDS) if n % 10 in (1, 4, 7))

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


def damaged_folder(folder: Path) -> list[Path]:
    """Write `CLOUDS` clouds; return the damaged ones."""
    folder.mkdir(parents=True)
    damaged = []
    for n in range(CLOUDS):
        kind = FORMATS[n % len(FORMATS)]
        path = folder / f"{n:03d}.{kind}"
        write_cloud(path, n)
        if n in DAMAGED:
            path.write_bytes(DAMAGES[kind][n % len(DAMAGES[kind])](path.read_bytes()))
            damaged.append(path)
    return damaged


def write_cloud(path: Path, seed: int) -> None:
    if path.suffix in (".las", ".laz"):
        write_las(path, POINTS, seed=seed)
        return
    rng = np.random.default_rng(seed)
    points = rng.uniform(-9, 9, (POINTS, 4)).astype(np.float32)
    points[:, 2] = 4 * (np.arange(POINTS) % len(CODES))
    points[:, 3] = rng.random(POINTS)
    rows = points.reshape(-1).view([(name, "<f4") for name in ("x", "y", "z", "intensity")])
    if path.suffix == ".pcd":
        path.write_bytes(pcd_bytes("binary", rows))
    elif path.suffix == ".ply":
        write_ply(path, [rows], rows.dtype)
    else:
        saved(path, points)
    np.save(path.with_name(f"{path.stem}_label.npy"), np.resize(CODES, POINTS))
