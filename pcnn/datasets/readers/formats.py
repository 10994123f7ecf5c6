"""The formats of points but LAS, and those of bare numbers: BIN, NPY, NPZ and text."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.readers.columns import (
    COLORS,
    LABEL,
    LAYOUTS,
    PART,
    Columns,
    Layout,
    columns_of,
    find_name,
    is_mixed,
    layout_of,
    ranges,
)
from pcnn.datasets.readers.point_file import PointFile, text_rows, with_fields
from pcnn.datasets.readers.vertices import open_pcd, open_ply, pcd_header, ply_header
from pcnn.errors import FileError
from pcnn.files.arrays import Records, names_in, open_npy, read_npz, stamp_of
from pcnn.files.bounded import read_whole

log = logging.getLogger(__name__)

_HEADER = 1 << 16  # bytes


def _numbers(path: Path, rows: Any, layout: Layout) -> PointFile:
    """Points of bare numbers [P, K], all looked at once."""
    if rows.shape[1:] != (len(layout.names),):
        raise FileError(path, f"found numbers {list(rows.shape)} for the columns {layout}")
    if len(rows) <= 4 * PART:
        rows = rows[:]  # read once
    found = ranges(rows, layout)
    return PointFile(path, rows, lambda part: columns_of(path, part, layout, found), layout.names)


def _bin(path: Path, layout: Layout | None) -> PointFile:
    """Float32 numbers: columns of nuScenes in ``.pcd.bin``, of KITTI unless they are named.

    Numbers that are not those of KITTI, but of one other layout that is known, are read as it.
    """
    stamp = stamp_of(path)
    if not stamp[0]:
        raise FileError(path, "the file is empty")
    if layout is not None:
        return _floats(path, layout, stamp)
    usual = LAYOUTS["nuscenes" if path.name.lower().endswith(".pcd.bin") else "kitti"]
    try:
        return _floats(path, usual, stamp, told=False)
    except ValueError as error:
        fitting: dict[int, str] = {}  # ScanNet and SUN RGB-D differ in the range of colours alone
        for name, other in LAYOUTS.items():
            with suppress(ValueError):
                _floats(path, other, stamp, told=False)
                fitting.setdefault(len(other.names), name)
        rule = error.rule if isinstance(error, FileError) else str(error)
        if len(fitting) != 1:
            fits = f"; may be {' or '.join(fitting.values())}" if fitting else ""
            raise FileError(path, f"{rule}{fits} (--columns, dataset.columns)") from error
    (name,) = fitting.values()
    _tell(f"read as columns {LAYOUTS[name]} ({name}), as {rule}", path)
    return _floats(path, LAYOUTS[name], stamp)


def _floats(path: Path, layout: Layout, stamp: tuple[int, int], told: bool = True) -> PointFile:
    """Float32 numbers of a layout, which is `told`, or must show in the numbers."""
    width = len(layout.names)
    if stamp[0] % (4 * width):
        raise FileError(path, f"{stamp[0]} bytes are no whole number of points of {layout}")
    rows = Records(path, 0, np.dtype("<f4"), stamp[0] // (4 * width), (width,), stamp)
    if not told and is_mixed(rows[:5040].reshape(-1), width):
        raise ValueError(f"the numbers are not those of columns {layout}")
    return _numbers(path, rows, layout)


@lru_cache(maxsize=16)
def _tell(text: str, path: Path) -> None:
    log.warning("%s: %s", path, text)


def _npy(path: Path, layout: Layout | None) -> PointFile:
    rows = open_npy(path)
    if rows.dtype.names:
        return with_fields(path, rows)
    if len(rows.shape) != 2 or rows.shape[1] < 3 or rows.dtype.kind not in "fiu":
        raise FileError(path, f"points must be numbers [P, 3 or more], found {list(rows.shape)}")
    if layout is not None:
        return _numbers(path, rows, layout)
    further = [f"column{number}" for number in range(3, rows.shape[1])]
    names = ["intensity"] if len(further) == 1 else further

    def columns(part: np.ndarray) -> Columns:
        values = {name: part[:, 3 + place] for place, name in enumerate(names)}
        return Columns(path, part[:, :3], values, unnamed=True)

    return PointFile(path, rows, columns)


_POINTS = ("points", "xyz", "pcd", "coords", "coord", "pos", "positions", "vertices", "cloud")
_COLOURS = ("colors", "colours", "color", "colour", "rgb")
_LABELS = ("label", "labels", "class", "classes")


def _npz(path: Path, layout: Layout | None) -> PointFile:
    """Arrays ``points`` [P, 3 or more] (or ``xyz``, ...), or x, y, z; others by their names."""
    arrays = {name.lower(): values for name, values in read_npz(path).items()}
    name = next((n for n in _POINTS if n in arrays), None)
    columns: dict[str, np.ndarray] = {}
    if name is not None:
        values = arrays.pop(name)
        if values.dtype.names:
            columns |= {field: values[field] for field in values.dtype.names}
        elif values.ndim != 2 or values.shape[1] < 3 or values.dtype.kind not in "fiu":
            raise FileError(path, f"{name} must be numbers [P, 3 or more], found {values.shape}")
        else:
            names = layout.names if layout and len(layout.names) == values.shape[1] else None
            names = names or ("x", "y", "z", *(["intensity"] if values.shape[1] == 4 else []))
            columns |= {column: values[:, place] for place, column in enumerate(names)}
    for name, values in arrays.items():
        if values.dtype.kind not in "fiub" or (columns and len(values) != len(columns["x"])):
            continue
        if name in _COLOURS and values.ndim == 2 and values.shape[1] >= len(COLORS):
            columns |= {color: values[:, place] for place, color in enumerate(COLORS)}
        elif name in _LABELS and values.ndim == 1 and values.dtype.kind in "iu":
            columns[LABEL] = values
        elif values.ndim == 1:
            columns.setdefault(name, values)
    if not columns.keys() >= {"x", "y", "z"}:
        raise FileError(path, f"no array {', '.join(_POINTS[:3])} among {', '.join(arrays)[:200]}")
    count = len(columns["x"])
    kept = {n: v for n, v in columns.items() if len(v) == count or n in "xyz"}
    table = np.empty(count, [(n, v.dtype, v.shape[1:]) for n, v in kept.items()])
    for name, values in kept.items():
        table[name] = values
    return with_fields(path, table)


_COMMENT = (b"#", b"//", b"%")
_BETWEEN = bytes.maketrans(b",;\t", b"   ")
_WORD = re.compile(rb"[A-Za-z_]\w*")


def _text(path: Path, layout: Layout | None) -> PointFile:
    """Numbers, a line a point; a first line of names, behind a mark of comments or not, names them.

    Without names four columns are x, y, z, intensity, and six with bytes behind are colours.
    """
    lines = read_whole(path).translate(_BETWEEN).splitlines()
    names, head = _named(lines)
    rows = [line for line in lines[head:] if not line.lstrip().startswith(_COMMENT)]
    if not rows:
        raise FileError(path, "the file is empty: it has no row of numbers")
    width = len(rows[0].split())
    kind = np.dtype([(str(number), "f8") for number in range(width)])
    values = text_rows(path, b"\n".join(rows), kind, len([row for row in rows if row.strip()]))
    values = values.view("f8").reshape(-1, width)
    if layout is None and len(names) == width:
        layout = layout_of(names)
    if layout is None:
        layout = _likely(values)
    return _numbers(path, values, layout)


def _named(lines: list[bytes]) -> tuple[list[str], int]:
    """Names of columns in lines of text, and how many lines come before the first row."""
    names: list[str] = []
    for number, line in enumerate(lines):
        words = line.lstrip(b"#/% ").split()
        if {w.lower() for w in words} >= {b"x", b"y", b"z"} and all(map(_WORD.fullmatch, words)):
            names = [word.decode() for word in words]
        elif line.strip() and not line.lstrip().startswith(_COMMENT):
            return names, number
    return names, len(lines)


def _likely(values: np.ndarray) -> Layout:
    """Columns of numbers without names."""
    width = values.shape[1]
    if width == len(LAYOUTS["kitti"].names):
        return LAYOUTS["kitti"]
    if width == len(LAYOUTS["scannet"].names):
        with suppress(ValueError):
            ranges(values, LAYOUTS["scannet"])
            return LAYOUTS["scannet"]
    return Layout(("x", "y", "z", *(f"column{number}" for number in range(3, width))))


TEXTS = (".txt", ".xyz", ".csv", ".asc")
READERS: dict[str, Callable[[Path, Layout | None], PointFile]] = {
    ".bin": _bin,
    ".npy": _npy,
    ".npz": _npz,
    ".pcd": open_pcd,
    ".ply": open_ply,
    **dict.fromkeys(TEXTS, _text),
}


def has_labels(path: Path, columns: Sequence[str] | None) -> bool:
    """Whether the file of a cloud, of a format of `READERS`, holds labels of its own."""
    suffix = path.suffix.lower()
    names: Sequence[str] = ()
    if suffix in (".bin", ".npy") and columns:
        names = layout_of(columns).names
    elif suffix == ".npy":
        names = open_npy(path).dtype.names or ()
    elif suffix == ".ply":
        names = [
            name
            for element, _, dtype in ply_header(path)[1]
            if element == "vertex"
            for name in (dtype and dtype.names) or ()
        ]
    elif suffix == ".pcd":
        names = pcd_header(path)[0]["FIELDS"]
    elif suffix == ".npz":
        names = [LABEL for name in names_in(path) if name.lower() in _LABELS]
    elif suffix in TEXTS:
        with path.open("rb") as file:
            lines = file.read(_HEADER).translate(_BETWEEN).splitlines()
        names, head = _named(lines)
        if columns and len(lines) > head and len(lines[head].split()) == len(columns):
            names = layout_of(columns).names
    return find_name(LABEL, names) is not None
