"""The points of a file, whole or part by part, from records with fields or lines of text."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.readers.columns import COLORS, LABEL, PART, Columns, meant
from pcnn.errors import FileError
from pcnn.files.arrays import Records, stamp_of
from pcnn.files.bounded import check_size


@dataclass(frozen=True, eq=False)
class PointFile:
    """The points of a file, read whole or part by part."""

    path: Path  # the file
    rows: Any  # [P, ...] an array, or Records of a file of any size
    columns: Callable[[np.ndarray], Columns]  # some of the rows as columns
    names: tuple[str, ...] = ()  # of the columns beside x, y, z
    in_map = False
    unit = 1.0

    def __len__(self) -> int:
        return len(self.rows)

    def parts(self, wanted: Sequence[str] = ()) -> Iterator[Columns]:
        """The points in order, `PART` at a time; at least one part. All columns are there."""
        for first in range(0, max(len(self), 1), PART):
            yield self.columns(self.rows[first : first + PART])

    def whole(self, wanted: Sequence[str] = ()) -> Columns:
        """All points."""
        check_size(self.path, len(self) * self.rows.dtype.itemsize, what="its points")
        return self.columns(self.rows[:])


def records_of(path: Path, start: int, dtype: np.dtype, count: int, last: bool = True) -> Records:
    """Records that a file announces; `last` where nothing may come behind them."""
    stamp = stamp_of(path)
    needed, held = count * dtype.itemsize, stamp[0] - start
    if needed > held or (last and needed < held):
        wrong = "truncated: " if held < needed else ""
        raise FileError(path, f"{wrong}{count} points need {needed} bytes, the file has {held}")
    return Records(path, start, dtype, count, (), stamp)


def text_rows(
    path: Path, body: bytes, dtype: np.dtype, count: int, exact: bool = True
) -> np.ndarray:
    """Rows of numbers, one a line; blank lines are skipped."""
    lines = [line for line in body.decode("ascii").splitlines() if line.strip()]
    if len(lines) < count or (exact and len(lines) > count):
        raise FileError(path, f"{count} rows are announced, the file has {len(lines)}")
    if not count:
        return np.empty(0, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # 1.7 would become the integer 1
        return np.loadtxt(lines, dtype, comments=None, max_rows=count, ndmin=1)


def _structured(path: Path, points: np.ndarray) -> Columns:
    """Points whose columns are the fields of an array."""
    fields = {name: points[name] for name in points.dtype.names or ()}
    for name in ("rgb", "rgba"):  # four bytes: alpha, red, green and blue, the highest first
        packed = next((n for n in fields if n.lower() == name), None)
        if {n.lower() for n in fields} & set(COLORS) or packed is None:
            continue
        if fields[packed].dtype.str in ("<f4", "<u4", "<i4"):
            words = np.ascontiguousarray(fields[packed]).view("<u4")
            for color, shift in zip(COLORS, (16, 8, 0), strict=True):
                fields[color] = (words >> shift & 0xFF).astype(np.uint8)
    lower = {name.lower(): name for name in fields}
    places = np.stack([fields[lower[axis]] for axis in "xyz"], axis=1)
    label = next((n for n in fields if meant(n) == LABEL), None)
    labels = None if label is None else _whole_numbers(path, label, fields[label])
    return Columns(path, places, fields, labels)


def _whole_numbers(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    labels = values.astype(np.int64)
    if not np.array_equal(labels, values):
        raise FileError(path, f"{name} must hold whole numbers")
    return labels


def with_fields(path: Path, rows: Any) -> PointFile:
    """The points of rows with fields, once these are columns."""
    names = rows.dtype.names or ()
    lower = {name.lower() for name in names}
    if len(rows.shape) != 1 or not lower >= {"x", "y", "z"}:
        raise FileError(path, f"points need fields x, y, z; found {', '.join(names)[:200]}")
    for name in names:
        if rows.dtype[name].base.kind not in "fiub":
            raise FileError(path, f"{name} holds {rows.dtype[name]}, no numbers")
        if rows.dtype[name].shape and meant(name) in ("x", "y", "z", LABEL):
            raise FileError(path, f"{name} holds several numbers a point")
    return PointFile(path, rows, partial(_structured, path), names)
