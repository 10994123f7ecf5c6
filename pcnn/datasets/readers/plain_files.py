"""Clouds in ``.txt`` files of numbers and in ``.npz`` archives, taken where they are named.

In a folder such files may be anything else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pcnn.datasets.readers.columns import LAYOUTS, Columns, columns_named, plain_table, problems
from pcnn.datasets.readers.number_text import number_rows
from pcnn.datasets.readers.table import COLORS, PointTable, places_of
from pcnn.errors import FileError
from pcnn.files.arrays import read_npz
from pcnn.files.bounded import LIMIT, read_whole

_COMMENT = (b"#", b"//", b"%")
_BETWEEN = bytes.maketrans(b",;\t", b"   ")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_POINTS = ("points", "xyz", "coords", "coord", "pos", "positions", "vertices", "cloud")
_COLOURS = ("colors", "colours", "color", "colour", "rgb")
_LABELS = ("label", "labels", "class", "classes")


def read_txt(path: Path, columns: Sequence[str] | None = None, limit: float = LIMIT) -> PointTable:
    """Read a file of numbers, a line a point, with blanks, tabs, commas or semicolons between.

    Lines that begin with ``#``, ``//`` or ``%`` are passed over; a first line of names, with such a
    mark or without, names the columns. Without names four columns are x, y, z, intensity and six
    whose last three are whole numbers up to 255 x, y, z, red, green, blue.

    Args:
        path: the file.
        columns: names of its columns.
        limit: its largest size [GiB].

    Raises:
        FileError: a line that is no row of numbers, or columns without x, y, z.
    """
    body = read_whole(path, limit).translate(_BETWEEN)
    lines = body.splitlines()
    named: list[bytes] | None = None
    head = len(lines)  # of them come before the first row
    for number, line in enumerate(lines):
        words = line.lstrip(b"#/% ").split()
        if {w.lower() for w in words} >= {b"x", b"y", b"z"} and all(map(_WORD.fullmatch, words)):
            named = words
        elif line.strip() and not line.lstrip().startswith(_COMMENT):
            head = number
            break
    rows = [line for line in lines[head:] if not line.lstrip().startswith(_COMMENT)]
    width = len(rows[0].split()) if rows else 3
    if width < 3:
        raise FileError(path, f"line {head + 1}: want x, y, z and more, found {lines[head][:80]!r}")
    kind = np.dtype([(str(number), "f8") for number in range(width)])
    count = sum(1 for line in rows if line.strip())
    found = number_rows(path, b"\n".join(rows), kind, count, head + 1)
    values = found.view(np.float64).reshape(-1, width)
    if columns is not None:
        return plain_table(path, values, columns_named(columns))
    if named is not None and len(named) == width:
        return plain_table(path, values, columns_named([word.decode() for word in named]))
    return plain_table(path, values, _likely(values))


def _likely(values: np.ndarray) -> Columns:
    """Columns of numbers without names."""
    width = values.shape[1]
    if width == len(LAYOUTS["kitti"]):
        return LAYOUTS["kitti"]
    scannet = LAYOUTS["scannet"]
    if width == len(scannet) and not problems(values, scannet):
        return scannet
    return Columns(("x", "y", "z", *(f"column{number}" for number in range(3, width))))


def read_npz_points(path: Path, limit: float = LIMIT) -> PointTable:
    """Read an archive: ``points`` [P, 3 or more] (or ``xyz``, ``coords``), or ``x``, ``y``, ``z``.

    Other arrays [P] are columns by their names, ``colors`` [P, 3] (``rgb``) colours, ``labels``
    labels.

    Args:
        path: the file.
        limit: largest size of what it unpacks to [GiB].

    Raises:
        FileError: no whole archive, or one without positions.
    """
    arrays = read_npz(path, limit=limit)
    lower = {name.lower(): values for name, values in arrays.items()}
    name = next((n for n in _POINTS if n in lower), None)
    columns: dict[str, np.ndarray] = {}
    if name is not None and lower[name].dtype.names:
        places = places_of(lower[name])
        columns |= {n: lower[name][n] for n in lower[name].dtype.names or ()}
    elif name is not None:
        values = lower[name]
        if values.ndim != 2 or values.shape[1] < 3 or values.dtype.kind not in "fiu":
            raise FileError(path, f"{name} must be numbers [P, 3 or more], found {values.shape}")
        places = values[:, :3]
        if values.shape[1] == 4:
            columns["intensity"] = values[:, 3]
    elif {"x", "y", "z"} <= set(lower):
        places = np.stack([lower[axis].reshape(-1) for axis in "xyz"], axis=1)
    else:
        raise FileError(path, f"no array {', '.join(_POINTS[:3])}; it has {', '.join(arrays)}")
    labels = None
    for name, values in lower.items():
        if values.shape[:1] != places.shape[:1] or values.dtype.kind not in "fiub":
            continue
        if name in _COLOURS and values.ndim == 2 and values.shape[1] >= len(COLORS):
            columns |= {color: values[:, k] for k, color in enumerate(COLORS)}
        elif name in _LABELS and values.ndim == 1 and values.dtype.kind in "iu":
            labels = values.astype(np.int64)
        elif values.ndim == 1 and name not in "xyz":
            columns[name] = values
    return PointTable(path, places, tuple(columns), columns.__getitem__, labels)
