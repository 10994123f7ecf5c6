"""Clouds part by part: files of any size, of which a part is in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pcnn.ahead import in_order
from pcnn.datasets.readers import las
from pcnn.datasets.readers.channels import Reading
from pcnn.datasets.readers.points import ALSO, MISSING, open_table, read_table, strict_rule
from pcnn.datasets.readers.table import PointTable, valid_returns
from pcnn.errors import FileError, MissingFileError
from pcnn.files.bounded import named
from pcnn.plural import counted

#: Points of a part.
PART = 1 << 18
#: Threads that read parts, where more than one may.
_THREADS = 2


@dataclass(frozen=True, eq=False)
class Part:
    """Points of a part of a cloud, missing returns left out.

    Args:
        rows: [M] int64 numbers of the points in the file, rising.
        places: [M, 3] float64 coordinates of the file times its scale [m].
        channels: [M, F] float32.
    """

    rows: np.ndarray
    places: np.ndarray
    channels: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, chosen: np.ndarray | slice) -> Part:
        """The points of a mask, of positions in the part, or of a slice."""
        return Part(self.rows[chosen], self.places[chosen], self.channels[chosen])


@dataclass(frozen=True, eq=False)
class PartedCloud:
    """A cloud that is read part by part, as often as is asked for.

    Files stay on the disk; those of text or packed data, except LAZ, are held whole.

    Args:
        path: the file, or what the points are called in messages.
        points: rows of the file, missing returns among them.
        in_map: the format's coordinates are those of a map.
        reading: which channels are read.
        table: points from a row on, so many of them.
        direct: channels that several threads may read, beside the places; None: one thread reads.
    """

    path: Path
    points: int
    in_map: bool
    reading: Reading
    table: Callable[[int, int], PointTable]
    direct: frozenset[str] | None = None

    def __iter__(self) -> Iterator[Part]:
        firsts, wanted = range(0, self.points, PART), self.reading.channels
        if self.direct is None or wanted is None or not self.direct.issuperset(wanted):
            yield from map(self._read, firsts)
        else:
            yield from in_order(self._read, firsts, _THREADS)

    def _read(self, first: int) -> Part:
        with named(self.path, f"{self.path.suffix} file"):
            return self._part(self.table(first, PART), first)

    def _part(self, table: PointTable, first: int) -> Part:
        channels = self.reading.values(table)
        valid = valid_returns(table.places)
        for number in range(channels.shape[1]):
            valid &= np.isfinite(channels[:, number])
        if self.reading.strict and not valid.all():
            raise FileError(self.path, strict_rule(valid, first))
        if valid.all():
            rows, chosen = np.arange(len(valid)), table.places
        else:
            rows = np.flatnonzero(valid)
            chosen, channels = table.places[rows], channels[rows]
        return Part(rows + first, chosen.astype(np.float64) * self.reading.scale, channels)

    def whole(self) -> Part:
        """All points.

        Raises:
            FileError: all of them are missing returns.
        """
        parts = list(self)
        if self.points and not any(map(len, parts)):
            raise FileError(self.path, f"all {counted(self.points, 'point')} are {MISSING}")
        if not parts:
            parts = [self._part(self.table(0, 0), 0)]
        return Part(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.channels for part in parts]),
        )

    def sample(self, most: int) -> np.ndarray:
        """Places [M, 3] float64 of some points, spread over the file, M about ``most``."""
        step = max(1, self.points // max(most, 1))
        plain = replace(self.reading, channels=(), fill={}, by_place=False)
        parts = [part.places[::step] for part in replace(self, reading=plain)]
        return np.concatenate([np.empty((0, 3)), *parts])


def open_parts(path: Path, reading: Reading) -> PartedCloud:
    """Open a cloud of any format.

    Raises:
        MissingFileError: no such file.
        MissingPackageError: a package that the format needs is not installed.
        FileError: as `pcnn.datasets.readers.clouds.read_points`.
    """
    if not path.is_file():
        raise MissingFileError(path, "no such file")
    with named(path, f"{path.suffix} file"):
        if path.suffix.lower() in las.SUFFIXES:
            file = las.open_las(path)
            direct = None if file.rows is None else frozenset({"intensity"})
            return PartedCloud(path, len(file), True, reading, file.part, direct)
        if path.suffix.lower() in ALSO:
            return parted(read_table(path, reading), reading)
        rows = open_table(path, reading)
        return PartedCloud(path, len(rows), False, reading, rows.part)


def parted(table: PointTable, reading: Reading) -> PartedCloud:
    """A cloud in memory."""

    def part(first: int, count: int) -> PointTable:
        rows = slice(first, first + count)

        def column(name: str) -> np.ndarray:
            return table.column(name)[rows]

        return replace(table, places=table.places[rows], column=column, labels=None)

    return PartedCloud(table.path, len(table), table.in_map, reading, part)
