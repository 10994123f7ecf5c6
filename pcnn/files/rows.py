"""Records of a file that can be read in ranges of rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Protocol

import numpy as np

from pcnn.errors import FileError

#: Rows that are read at a time where all are looked at.
ROWS = 1 << 18


class Rows(Protocol):
    """Records that can be read in ranges of rows."""

    @property
    def kind(self) -> np.dtype:
        """Type of the numbers, in the byte order of the machine."""

    def __len__(self) -> int:
        """Number of rows P."""

    def read(self, first: int, count: int) -> np.ndarray:
        """Rows from ``first`` on, so many of them or as many as there are."""


def ranges(rows: Rows) -> Iterator[np.ndarray]:
    """All rows in order, `ROWS` at a time."""
    for first in range(0, len(rows), ROWS):
        yield rows.read(first, ROWS)


@dataclass(frozen=True, eq=False)
class HeldRows:
    """Records in memory.

    Args:
        values: [P, ...].
    """

    values: np.ndarray

    @property
    def kind(self) -> np.dtype:
        """Type of the numbers."""
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.values)

    def read(self, first: int, count: int) -> np.ndarray:
        """A view of rows."""
        return self.values[first : first + count]


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Records of one size that lie one after another in a file of any size.

    They are read, not mapped: a file that is cut off while it is read gives an error, where a
    mapped one would end the process.

    Args:
        path: the file.
        start: bytes in front of the first record.
        stored: type of the numbers in the file, which holds no Python objects.
        count: number of records P.
        shape: of a record; () for one number or one structure.
        stamp: size and time of the file; one that changed is refused.

    Raises:
        FileError: while reading, a file that is not the one that was opened.
    """

    path: Path
    start: int
    stored: np.dtype
    count: int
    shape: tuple[int, ...]
    stamp: tuple[int, int]

    @property
    def kind(self) -> np.dtype:
        """Type of the numbers, in the byte order of the machine."""
        return self.stored.newbyteorder("=")

    def __len__(self) -> int:
        return self.count

    def read(self, first: int, count: int) -> np.ndarray:
        """Rows [M, *shape] from ``first`` on, in memory of their own.

        Raises:
            FileError: the file changed since it was opened.
        """
        count = max(0, min(count, self.count - first))
        each = prod(self.shape)
        with self.path.open("rb") as file:
            if stamp_of(file.fileno()) != self.stamp:
                raise FileError(self.path, "it changed while it was read")
            file.seek(self.start + first * each * self.stored.itemsize)
            found = np.fromfile(file, self.stored, count * each)
        if len(found) < count * each:
            raise FileError(self.path, "it was cut off while it was read")
        return found.astype(self.kind, copy=False).reshape(count, *self.shape)


def stamp_of(file: int | Path) -> tuple[int, int]:
    """Size and time of a file, or of an open one."""
    found = os.stat(file)
    return found.st_size, found.st_mtime_ns
