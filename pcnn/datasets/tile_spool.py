"""A cloud of any size on the disk, sorted into squares that overlap."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcnn.datasets.readers.parts import Part

Square = tuple[int, int]


def square_size(
    cloud: Iterable[Part], margin: float, most: int, least: float, largest: float
) -> float:
    """Edge of squares of which none, with its margin, holds many more points than allowed.

    Args:
        cloud: its parts, read once.
        margin: how far around a square is seen too [m].
        most: points of a square with its margin.
        least: smallest edge [m].
        largest: largest edge [m]; the edge is this, or a half, a quarter, ... of it.
    """
    halvings = max(0, math.ceil(math.log2(largest / least)))
    fine = largest / 2**halvings
    counts: Counter[Square] = Counter()
    for part in cloud:
        cells, found = np.unique(_cells(part.places, fine), axis=0, return_counts=True)
        counts.update(dict(zip(map(tuple, cells.tolist()), found.tolist(), strict=True)))
    for halving in range(halvings + 1):
        size, fold = largest / 2**halving, 2 ** (halvings - halving)
        squares: Counter[Square] = Counter()
        for (i, j), number in counts.items():
            squares[i // fold, j // fold] += number
        seen = ((size + 2 * margin) / size) ** 2
        if max(squares.values(), default=0) * seen <= most:
            return size
    return fine


@dataclass(frozen=True)
class TileSpool:
    """Squares ``floor(x / size), floor(y / size)`` of a cloud with what lies around each, in files.

    Args:
        folder: for the files; they are removed as squares are read.
        size: edge of a square [m].
        margin: how far around a square its file reaches [m], at most the edge.
        channels: F of a point.

    Raises:
        ValueError: a size or a margin out of range.
    """

    folder: Path
    size: float
    margin: float
    channels: int

    def __post_init__(self) -> None:
        if not 0 < self.size < float("inf"):
            raise ValueError(f"tiles need a positive edge [m], got {self.size}")
        if not 0 <= self.margin <= self.size:
            raise ValueError(f"margin must lie in [0, {self.size}] m, got {self.margin}")

    def fill(self, cloud: Iterable[Part]) -> tuple[list[Square], int]:
        """Write the files; returns the squares that own points, rising, and how many these are."""
        owners: set[Square] = set()
        points = 0
        for part in cloud:
            points += len(part)
            cells = _cells(part.places, self.size)  # [M, 2]
            owners.update(map(tuple, np.unique(cells, axis=0).tolist()))
            inside = part.places[:, :2] - cells * self.size  # [M, 2] in [0, size)
            for a in (-1, 0, 1):
                for b in (-1, 0, 1):
                    # points of the square that the one at (a, b) of it sees
                    seen = np.ones(len(part), dtype=bool)
                    for axis, step in ((0, a), (1, b)):
                        if step < 0:
                            seen &= inside[:, axis] <= self.margin
                        elif step > 0:
                            seen &= inside[:, axis] >= self.size - self.margin
                    if self.margin == 0 and (a or b):
                        continue
                    self._append(part.select(seen), cells[seen] + (a, b))
        for path in self.folder.glob("*.tile"):  # margins of squares that own nothing
            if self._square(path) not in owners:
                path.unlink()
        return sorted(owners), points

    def read(self, square: Square) -> Part:
        """The points of a square and around it, in the order of the file; removes its file."""
        path = self._path(square)
        held = np.fromfile(path, self._record)
        path.unlink()
        held = held[np.argsort(held["row"], kind="stable")]
        # columns of their own: torch takes no records
        return Part(*(np.ascontiguousarray(held[name]) for name in ("row", "place", "channels")))

    def own(self, square: Square, places: np.ndarray) -> np.ndarray:
        """Which of points [M, 3] are the square's own, [M] bool."""
        return (_cells(places, self.size) == square).all(axis=1)

    def weights(self, square: Square, places: np.ndarray) -> np.ndarray:
        """How much the square's answer counts for points [M, 3], [M] float32.

        Along each axis the weight falls from 1 to 0 across twice the margin, in whose middle lies
        the border: weights of all squares that see a point sum to 1, where all are there.
        """
        if self.margin == 0:
            return np.ones(len(places), np.float32)
        low = np.array(square) * self.size
        inside = np.minimum(places[:, :2] - low, low + self.size - places[:, :2])  # [M, 2]
        share = np.clip((inside + self.margin) / (2 * self.margin), 0, 1).prod(axis=1)
        # a point at the very edge that no other square sees has its answer all the same
        return np.maximum(share, 1e-6).astype(np.float32)

    def shared(self, square: Square, places: np.ndarray) -> np.ndarray:
        """Which of points [M, 3] other squares may see too, [M] bool."""
        low = np.array(square) * self.size
        inside = np.minimum(places[:, :2] - low, low + self.size - places[:, :2]).min(axis=1)
        return np.asarray(inside <= self.margin) if self.margin else np.zeros(len(places), bool)

    def squares_of(self, places: np.ndarray) -> np.ndarray:
        """The squares [M, 2] that own points [M, 3]."""
        return _cells(places, self.size)

    @property
    def _record(self) -> np.dtype:
        return np.dtype(
            [("row", "i8"), ("place", "f8", (3,)), ("channels", "f4", (self.channels,))]
        )

    def _path(self, square: Square) -> Path:
        return self.folder / f"{square[0]}_{square[1]}.tile"

    @staticmethod
    def _square(path: Path) -> Square:
        i, j = path.stem.split("_")
        return int(i), int(j)

    def _append(self, part: Part, squares: np.ndarray) -> None:
        records = np.empty(len(part), self._record)
        records["row"], records["place"] = part.rows, part.places
        records["channels"] = part.channels
        for square, rows in groups(squares):
            with self._path(square).open("ab") as file:
                file.write(records[rows].tobytes())


def groups(squares: np.ndarray) -> Iterator[tuple[Square, np.ndarray]]:
    """Every square of squares [M, 2] with the positions that hold it."""
    if not len(squares):
        return
    names, number = np.unique(squares, axis=0, return_inverse=True)
    order = np.argsort(number.reshape(-1), kind="stable")
    ends = np.bincount(number.reshape(-1), minlength=len(names)).cumsum()
    squares_of_groups = [(int(i), int(j)) for i, j in names]
    yield from zip(squares_of_groups, np.split(order, ends[:-1]), strict=True)


def _cells(places: np.ndarray, size: float) -> np.ndarray:
    return np.floor(places[:, :2] / size).astype(np.int64)
