"""A room as arrays, and the files of Pointcept's preprocessing, one array each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcnn.datasets.labels import IGNORE
from pcnn.datasets.rounding import rounded_points
from pcnn.datasets.s3dis.classes import CLASS_NAMES
from pcnn.datasets.whole_file import whole_file
from pcnn.errors import FileError
from pcnn.files.npy import read_npy

# written in this order, so that a room that holds coordinates holds everything
STEMS = ("instance", "segment", "color", "coord")
_TYPES = {"instance": "<i2", "segment": "<i2", "color": "|u1", "coord": "<f4"}


@dataclass(frozen=True, eq=False)
class RoomArrays:
    """All points of a room.

    Args:
        coord: [P, 3] float32 [m], in the building's frame.
        color: [P, 3] uint8 red, green, blue.
        segment: [P] int16 classes 0..12; -1 where Pointcept's files say "none".
        instance: [P] int16 objects of the room, from 0; -1 where there is none.
    """

    coord: np.ndarray
    color: np.ndarray
    segment: np.ndarray
    instance: np.ndarray

    @property
    def n_points(self) -> int:
        """Number of points P."""
        return len(self.coord)


def array_files(folder: Path) -> list[Path]:
    """Return the files of a room of arrays that training reads: coordinates, colours, classes."""
    return [folder / f"{stem}.npy" for stem in ("coord", "color", "segment")]


def is_array_room(folder: str | Path) -> bool:
    """Tell whether a folder holds all four arrays of a room."""
    return all((Path(folder) / f"{stem}.npy").is_file() for stem in STEMS)


def read_array_room(folder: Path) -> RoomArrays:
    """Read `coord`, `color`, `segment` and, where it exists, `instance` from a room's folder.

    Written by `write_array_room` or by Pointcept; its `normal.npy` is not read.

    Raises:
        FileError: an array that is not whole, of another length, or with numbers that make no
            sense; with its file.
    """
    coord = _load(folder, "coord", 3)
    n = len(coord)
    bad = ~np.isfinite(coord).all(1)
    if bad.any():
        raise FileError(
            folder / "coord.npy",
            f"{int(bad.sum())} of {n} points are NaN or infinite, the first is point "
            f"{int(bad.argmax())}",
        )
    color = _load(folder, "color", 3, n)
    if color.dtype != np.uint8:
        if len(color) and not (color.min() >= 0 and color.max() <= 255):  # NaN fails too
            raise FileError(folder / "color.npy", "colours must lie in 0..255")
        color = np.rint(color).astype(np.uint8)
    segment = _load(folder, "segment", 1, n)[:, 0]
    if n and not (segment.min() >= -1 and segment.max() < len(CLASS_NAMES)):
        raise FileError(
            folder / "segment.npy",
            f"classes must lie in -1..{len(CLASS_NAMES) - 1}, found {segment.min()}.."
            f"{segment.max()}",
        )
    instance = np.full(n, -1, np.int16)
    if (folder / "instance.npy").is_file():
        instance = _load(folder, "instance", 1, n)[:, 0]
        if n and not (instance.min() >= -1 and instance.max() < 1 << 15):
            raise FileError(folder / "instance.npy", "objects are numbered from 0, -1 for none")
    return RoomArrays(
        rounded_points(coord, folder / "coord.npy"),
        color,
        segment.astype(np.int16, copy=False),
        instance.astype(np.int16, copy=False),
    )


def write_array_room(folder: Path, room: RoomArrays) -> None:
    """Write a room as Pointcept's preprocessing does; every file appears whole or not at all.

    `coord` float32 [P, 3], `color` uint8 [P, 3], `segment` int16 [P, 1], `instance` int16 [P, 1].
    """
    for stem in STEMS:
        array = getattr(room, stem)
        array = array if array.ndim == 2 else array[:, None]
        with whole_file(folder / f"{stem}.npy") as file:
            np.save(file, np.ascontiguousarray(array, dtype=_TYPES[stem]))


def train_ids(segment: np.ndarray) -> np.ndarray:
    """Return [P] int64 train ids of classes; -1 becomes `IGNORE`."""
    wide = segment.astype(np.int64)
    return np.where(wide < 0, IGNORE, wide)


def _load(folder: Path, stem: str, columns: int, rows: int | None = None) -> np.ndarray:
    path = folder / f"{stem}.npy"
    array = read_npy(path)
    if array.ndim == 1 and columns == 1:
        array = array[:, None]
    kinds = "iu" if columns == 1 else "fiu"
    if array.ndim != 2 or array.shape[1] != columns or array.dtype.kind not in kinds:
        raise FileError(
            path,
            f"{'integers' if columns == 1 else 'numbers'} [P, {columns}] expected, found "
            f"{array.dtype} {list(array.shape)}",
        )
    if rows is not None and len(array) != rows:
        raise FileError(path, f"{len(array)} rows, but coord.npy has {rows} points")
    return array
