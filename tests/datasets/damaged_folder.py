"""A folder of small clouds in all formats, some of them damaged, each in another way."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pcnn.files.ply import write_ply
from tests.datasets.las_files import CODES, write_las
from tests.datasets.point_files import pcd_bytes, saved

CLASSES = {
    "names": ["ground", "tree", "house"],
    "map": {2: "ground", 5: "tree", 6: "house"},
    "ignore": [1],
}
FORMATS = ("bin", "laz", "npy", "las", "ply", "pcd")
CLOUDS, POINTS = 100, 24
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
        lambda data: b"\xff" * len(data),
        lambda data: np.random.default_rng(0).bytes(len(data)),
        lambda data: b"<html>not found</html>\n",
    ),
    "laz": (
        chunk(-4, "I", 0xFFFFFFFF),
        chunk(8 + 36 + 4, "I", 0xFFFFFFFF),  # a layer of 4 GiB: lazrs aborts
        put(247, "Q", 0xFFFFFFFF),
        cut(-9),
        chunk(0, "q", 1 << 62),
        lambda data: b"",
        swap(b"laszip encoded", b"laszip damaged"),
        lambda data: put(data.index(b"laszip") + 88, "H", 9999)(data),
        cut(-3),
    ),
    "npy": (
        swap(b"'shape': (24, 4)", b"'shape': (10**12"),
        swap(b"{'descr'", b'{"""escr'),
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
        put(0, "I", 0),
        put(104, "B", 99),
        put(104, "B", 11),
        put(105, "H", 0),
        put(131, "d", float("nan")),
        put(139, "d", 0.0),
        put(243, "I", 0xFFFFFFFF),
        put(247, "Q", (1 << 64) - 1),
        cut(-36),
        lambda data: b"",
    ),
    "ply": (
        swap(b"vertex 24", b"vertex 1000000000000"),
        swap(b"end_header", b"no_header_"),
        swap(b"property float x", b"property list uchar int x"),
        cut(-3),
        lambda data: b"ply\n\xff\xfe\n",
    ),
    "pcd": (
        swap(b"POINTS 24", b"POINTS 1000000000000"),
        swap(b"DATA binary", b"DATA binary_compressed"),
        swap(b"FIELDS x y z", b"FIELDS a b c"),
        swap(b"SIZE 4 4 4 4", b"SIZE 4 4 4 5"),
        cut(-1),
        lambda data: b"\xff" * 99,
        swap(b"WIDTH 24", b"WIDTH many"),
    ),
}
LABEL_DAMAGES: tuple[Damage, ...] = (
    cut(-5),
    swap(b"'<i8'", b"'<f8'"),
    swap(b"'shape': (24,)", b"'shape': (23,)"),
    lambda data: b"",
    swap(b"{'descr'", b'{"""escr'),
    archive,
)


def damaged_folder(folder: Path, labels: bool = False) -> list[Path]:
    """Write `CLOUDS` clouds; return the damaged files, of which the last may be their labels."""
    folder.mkdir(parents=True)
    paths = [folder / f"{n:03d}.{FORMATS[n % len(FORMATS)]}" for n in range(CLOUDS)]
    for n, path in enumerate(paths):
        write_cloud(path, n)
    label_files = [path.with_name(f"{path.stem}_label.npy") for path in paths]
    apart = [n for n in DAMAGED if label_files[n].exists()][-len(LABEL_DAMAGES) :] if labels else []
    left = dict.fromkeys(FORMATS, 0)
    damaged = []
    for n in DAMAGED:
        suffix = paths[n].suffix[1:]
        victim, kinds, turn = paths[n], DAMAGES[suffix], left[suffix]
        if n in apart:
            victim, kinds, turn = label_files[n], LABEL_DAMAGES, apart.index(n)
        else:
            left[suffix] += 1
        victim.write_bytes(kinds[turn % len(kinds)](victim.read_bytes()))
        damaged.append(victim)
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
