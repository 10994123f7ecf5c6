"""A cloud of any size on the disk in squares that overlap, and what they vote for their points."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np

from pcnn.datasets.readers.clouds import Part
from pcnn.datasets.readers.columns import PART
from pcnn.files.arrays import forget_pages

#: Threads that sort parts into squares: reading and writing, which one thread each does, take about
#: a quarter of the time.
_THREADS = 4

Square = tuple[int, int]
T = TypeVar("T")
R = TypeVar("R")


def square_size(
    cloud: Iterable[Part], margin: float, most: int, least: float, largest: float
) -> float:
    """Edge of squares of which none, with its margin, holds many more points than allowed.

    The edge [m] is the largest one or a half, a quarter, ... of it, down to the least.
    """
    halvings = max(0, math.ceil(math.log2(largest / least)))
    counts: Counter[Square] = Counter()  # of squares of the least edge

    def counted(part: Part) -> dict[Square, int]:
        _, found = _grouped(np.floor(part.places[:, :2] / largest * 2**halvings).astype(np.int64))
        return {square: last - first for square, (first, last) in found.items()}

    for some in in_order(counted, cloud, _THREADS):
        counts.update(some)
    for halving in range(halvings + 1):
        size, fold = largest / 2**halving, 2 ** (halvings - halving)
        squares: Counter[Square] = Counter()
        for (i, j), number in counts.items():
            squares[i // fold, j // fold] += number
        if max(squares.values(), default=0) * (1 + 2 * margin / size) ** 2 <= most:
            break
    return size


@dataclass(eq=False)
class Squares:
    """Squares ``floor(x / size), floor(y / size)`` of a cloud with what lies around each, in files.

    Points that several squares see have a slot each, in which the votes of the squares are summed.
    """

    folder: Path  # for the files; those of points are removed as squares are read
    size: float  # edge of a square [m]
    margin: float  # how far around a square its file reaches [m], at most the edge
    channels: int  # F of a point
    classes: int  # C
    owners: set[Square] = field(default_factory=set)  # squares that own points
    points: int = 0  # in all squares

    def __post_init__(self) -> None:
        if not 0 < self.size < math.inf or not 0 <= self.margin <= self.size:
            raise ValueError(
                f"tile={self.size}, margin={self.margin}: 0 <= margin <= tile, 0 < tile"
            )
        channels = ("channels", "f4", (self.channels,))
        self._record = np.dtype([("row", "i8"), ("slot", "i8"), ("place", "f8", (3,)), channels])
        self._slots = 0

    def fill(self, cloud: Iterable[Part]) -> list[Square]:
        """Write the files; returns the squares that own points, rising."""
        for part, owners, records, ranges in in_order(self._cut, cloud, _THREADS):
            self.owners |= owners
            self.points += part
            shared = records["slot"] >= 0
            records["slot"][shared] += self._slots
            self._slots = max(self._slots, int(records["slot"].max(initial=-1)) + 1)
            for square, (first, last) in ranges.items():
                with self._path(square).open("ab") as file:
                    file.write(records[first:last].data)
        for path in self.folder.glob("*.tile"):  # margins of squares that own nothing
            i, j = map(int, path.stem.split("_"))
            if (i, j) not in self.owners:
                path.unlink()
        self._votes = self._mapped("votes", np.float32, (self._slots, self.classes + 1))
        self._rows = self._mapped("rows", np.int64, (self._slots,))
        return sorted(self.owners)

    def read(self, square: Square) -> tuple[Part, np.ndarray]:
        """The points of a square and around it, in the order of the file; removes its file."""
        path = self._path(square)
        held = np.fromfile(path, self._record)
        path.unlink()
        held = held[np.argsort(held["row"], kind="stable")]
        # columns of their own: torch takes no records
        columns = (np.ascontiguousarray(held[name]) for name in ("row", "place", "channels"))
        return Part(*columns), np.ascontiguousarray(held["slot"])

    def weights(self, square: Square, places: np.ndarray) -> np.ndarray:
        """How much the square's answer counts for points [M, 3], [M] float32.

        Along each axis the weight falls from 1 to 0 across twice the margin, in whose middle lies
        the border: weights of all squares that see a point sum to 1, where all are there.
        """
        if self.margin == 0:
            return np.ones(len(places), np.float32)
        low = np.array(square) * self.size
        inside = np.minimum(places[:, :2] - low, low + self.size - places[:, :2])
        along = np.clip((inside + self.margin) / (2 * self.margin), 0, 1)
        # a point at the very edge that no other square sees has its answer all the same
        return np.maximum(along[:, 0] * along[:, 1], 1e-6).astype(np.float32)

    def vote(
        self, slots: np.ndarray, rows: np.ndarray, weights: np.ndarray, scores: np.ndarray
    ) -> None:
        """Add the probabilities [M, C] float16 that a square gives to points in slots [M]."""
        if len(slots):
            votes = np.concatenate([scores.astype(np.float32), np.ones((len(slots), 1), "f4")], 1)
            self._votes[slots] += votes * weights[:, None]
            self._rows[slots] = rows
            forget_pages(self._votes, self._rows)

    def settled(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows [M] of points that were voted for, and the mean of their votes [M, C] float32."""
        for first in range(0, self._slots, PART):
            votes = self._votes[first : first + PART]
            yield self._rows[first : first + PART], votes[:, :-1] / votes[:, -1:]
            forget_pages(self._votes, self._rows)

    def _mapped(self, name: str, kind: type, shape: tuple[int, ...]) -> np.ndarray:
        """Zeros in a file, or of no slots in memory."""
        if not self._slots:
            return np.zeros(shape, kind)
        return np.memmap(self.folder / name, kind, "w+", shape=shape)

    def _path(self, square: Square) -> Path:
        return self.folder / f"{square[0]}_{square[1]}.tile"

    def _cut(
        self, part: Part
    ) -> tuple[int, set[Square], np.ndarray, dict[Square, tuple[int, int]]]:
        """Points, squares that own some, records by square, and where those of each lie."""
        cells = np.floor(part.places[:, :2] / self.size).astype(np.int64)
        records = np.empty(len(part), self._record)
        records["row"], records["slot"] = part.rows, -1
        records["place"], records["channels"] = part.places, part.channels
        rows, seen = [np.arange(len(part))], [cells]
        if self.margin and len(part):
            inside = part.places[:, :2] - cells * self.size  # [M, 2] in [0, size)
            low, high = inside <= self.margin, inside >= self.size - self.margin
            near = np.flatnonzero((low | high).any(axis=1))
            records["slot"][near] = np.arange(len(near))
            sees = {-1: low[near], 0: np.ones((len(near), 2), bool), 1: high[near]}
            for step in set(product((-1, 0, 1), repeat=2)) - {(0, 0)}:
                rows.append(near[sees[step[0]][:, 0] & sees[step[1]][:, 1]])
                seen.append(cells[rows[-1]] + step)
        order, ranges = _grouped(np.concatenate(seen))
        owners = set(_grouped(cells)[1])
        return len(part), owners, records.take(np.concatenate(rows).take(order)), ranges


def _grouped(cells: np.ndarray) -> tuple[np.ndarray, dict[Square, tuple[int, int]]]:
    """Positions of cells [M, 2] sorted by cell, and where those of each begin and end."""
    if not len(cells):
        return np.empty(0, np.int64), {}
    corner, width = cells.min(axis=0), int(np.ptp(cells[:, 1])) + 1
    numbers = (cells[:, 0] - corner[0]) * width + (cells[:, 1] - corner[1])
    few = numbers.max() < 1 << 16  # then numpy counts in place of comparing
    order = np.argsort(numbers.astype(np.uint16) if few else numbers, kind="stable")
    begins = np.flatnonzero(np.diff(numbers.take(order), prepend=-1))
    ends = [*begins[1:].tolist(), len(numbers)]
    squares = map(tuple, cells[order[begins]].tolist())
    return order, dict(zip(squares, zip(begins.tolist(), ends, strict=True), strict=True))


def in_order(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield the results of a function in the order of the items, which threads work on."""
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
