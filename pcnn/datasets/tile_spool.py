"""A cloud of any size on the disk, sorted into squares that overlap."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcnn.ahead import ahead, in_order
from pcnn.datasets.readers.clouds import Part

#: Threads that sort parts into squares: reading and writing, which one thread each does, take about
#: a quarter of the time.
_THREADS = 4

Square = tuple[int, int]


def square_size(
    cloud: Iterable[Part], margin: float, most: int, least: float, largest: float
) -> float:
    """Edge of squares of which none, with its margin, holds many more points than allowed."""
    halvings = max(0, math.ceil(math.log2(largest / least)))
    fine = largest / 2**halvings
    counts: Counter[Square] = Counter()

    def counted(part: Part) -> list[tuple[Square, int]]:
        numbers, corner, width = _numbers(_cells(part.places, fine))
        found, of = np.unique(numbers, return_counts=True)
        return list(zip(_squares(found, corner, width), of.tolist(), strict=True))

    for found in in_order(counted, ahead(cloud), _THREADS):
        for square, number in found:
            counts[square] += number
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
    """Squares ``floor(x / size), floor(y / size)`` of a cloud with what lies around each,
    in files.
    """

    folder: Path  # for the files; they are removed as squares are read
    size: float  # edge of a square [m]
    margin: float  # how far around a square its file reaches [m], at most the edge
    channels: int  # F of a point

    def __post_init__(self) -> None:
        if not 0 < self.size < float("inf"):
            raise ValueError(f"tiles need a positive edge [m], got {self.size}")
        if not 0 <= self.margin <= self.size:
            raise ValueError(f"margin must lie in [0, {self.size}] m, got {self.margin}")

    def fill(self, cloud: Iterable[Part]) -> tuple[list[Square], int]:
        """Write the files; returns the squares that own points, rising, and how many these are."""
        owners: set[Square] = set()
        points = 0
        for cut in in_order(self._cut, ahead(cloud), _THREADS):
            owners.update(cut.owners)
            points += cut.points
            for square, (first, last) in cut.ranges.items():
                with self._path(square).open("ab") as file:
                    file.write(cut.records[first:last].data)
        for path in self.folder.glob("*.tile"):  # margins of squares that own nothing
            if self._square(path) not in owners:
                path.unlink()
        return sorted(owners), points

    def read(self, square: Square) -> Part:
        """The points of a square and around it, in the order of the file; removes its file."""
        path = self._path(square)
        held = np.fromfile(path, self._record)
        path.unlink()
        if not (held["row"][1:] > held["row"][:-1]).all():  # parts came in another order
            held = held[np.argsort(held["row"], kind="stable")]
        # columns of their own: torch takes no records
        return Part(*(np.ascontiguousarray(held[name]) for name in ("row", "place", "channels")))

    def own(self, square: Square, places: np.ndarray) -> np.ndarray:
        """Which of points [M, 3] are the square's own, [M] bool."""
        cells = _cells(places, self.size)
        return np.asarray((cells[:, 0] == square[0]) & (cells[:, 1] == square[1]))

    def weights(self, square: Square, places: np.ndarray) -> np.ndarray:
        """How much the square's answer counts for points [M, 3], [M] float32.

        Along each axis the weight falls from 1 to 0 across twice the margin, in whose middle lies
        the border: weights of all squares that see a point sum to 1, where all are there.
        """
        if self.margin == 0:
            return np.ones(len(places), np.float32)
        x, y = (
            np.clip((inside + self.margin) / (2 * self.margin), 0, 1)
            for inside in self._inside(square, places)
        )
        # a point at the very edge that no other square sees has its answer all the same
        return np.maximum(x * y, 1e-6).astype(np.float32)

    def shared(self, square: Square, places: np.ndarray) -> np.ndarray:
        """Which of points [M, 3] other squares may see too, [M] bool."""
        if not self.margin:
            return np.zeros(len(places), bool)
        x, y = self._inside(square, places)
        return np.asarray((x <= self.margin) | (y <= self.margin))

    def by_owner(self, places: np.ndarray) -> tuple[np.ndarray, dict[Square, tuple[int, int]]]:
        """Points [M, 3] by the square that owns them."""
        numbers, corner, width = _numbers(_cells(places, self.size))
        order, found = _grouped(numbers)
        squares = _squares(np.array([number for number, _ in found], np.int64), corner, width)
        return order, dict(zip(squares, (ends for _, ends in found), strict=True))

    def _inside(self, square: Square, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far points lie within the square along x and y, [M] each; negative outside."""
        low = np.array(square) * self.size
        x, y = (
            np.minimum(places[:, axis] - low[axis], low[axis] + self.size - places[:, axis])
            for axis in (0, 1)
        )
        return x, y

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

    def _cut(self, part: Part) -> _Cut:
        """The records of a part, square by square with what each sees beyond its border."""
        cells = _cells(part.places, self.size)  # [M, 2]
        numbers, corner, width = _numbers(cells)
        owners = _squares(np.unique(numbers), corner, width)
        rows, seen_by = [np.arange(len(part))], [numbers]
        if self.margin and len(part):
            steps = []
            for axis in (0, 1):
                inside = part.places[:, axis] - cells[:, axis] * self.size  # [M] in [0, size)
                steps.append((inside <= self.margin, inside >= self.size - self.margin))
            (left, right), (below, above) = steps
            near = np.flatnonzero(left | right | below | above)
            along_x = {-1: left[near], 0: None, 1: right[near]}
            along_y = {-1: below[near], 0: None, 1: above[near]}
            for a, of_x in along_x.items():
                for b, of_y in along_y.items():
                    # points that the square at (a, b) of their own one sees
                    if of_x is None and of_y is None:
                        continue
                    seen = of_y if of_x is None else of_x if of_y is None else of_x & of_y
                    assert seen is not None  # one of them is there
                    rows.append(near[seen])
                    seen_by.append(numbers[rows[-1]] + (a * width + b))
        seen_rows = np.concatenate(rows)
        rising = np.argsort(seen_rows, kind="stable")
        order, found = _grouped(np.concatenate(seen_by).take(rising))
        squares = _squares(np.array([number for number, _ in found], np.int64), corner, width)
        records = np.empty(len(part), self._record)
        records["row"], records["place"] = part.rows, part.places
        records["channels"] = part.channels
        return _Cut(
            len(part),
            owners,
            records.take(seen_rows.take(rising).take(order)),
            dict(zip(squares, (ends for _, ends in found), strict=True)),
        )


@dataclass(frozen=True, eq=False)
class _Cut:
    """Points of a part, its squares, its records by square, and where those of each lie."""

    points: int
    owners: list[Square]
    records: np.ndarray
    ranges: dict[Square, tuple[int, int]]


def _numbers(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """One number for each of cells [M, 2]; with what leads back, the lowest cell and the width.

    Numbers of the eight neighbours of a cell are those of no other cell.
    """
    if not len(cells):
        return np.empty(0, np.int64), np.zeros(2, np.int64), 1
    x, y = cells[:, 0], cells[:, 1]
    corner = np.array([x.min(), y.min()]) - 1
    width = int(y.max() - corner[1]) + 2
    return (x - corner[0]) * width + (y - corner[1]), corner, width


def _squares(numbers: np.ndarray, corner: np.ndarray, width: int) -> list[Square]:
    """The cells of numbers."""
    x, y = numbers // width + corner[0], numbers % width + corner[1]
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _grouped(numbers: np.ndarray) -> tuple[np.ndarray, list[tuple[int, tuple[int, int]]]]:
    """Positions sorted by number, and for every number its own and where they begin and end."""
    if not len(numbers):
        return np.empty(0, np.int64), []
    few = numbers.max() < 1 << 16  # then numpy counts in place of comparing
    order = np.argsort(numbers.astype(np.uint16) if few else numbers, kind="stable")
    ordered = numbers.take(order)
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    ends = [*begins[1:].tolist(), len(numbers)]
    return order, [
        (number, pair)
        for number, pair in zip(
            ordered[begins].tolist(), zip(begins.tolist(), ends, strict=True), strict=True
        )
    ]


def _cells(places: np.ndarray, size: float) -> np.ndarray:
    """Squares of points, [M, 2] int64, whose two columns lie one after the other."""
    return np.stack([np.floor(places[:, axis] / size).astype(np.int64) for axis in (0, 1)]).T
