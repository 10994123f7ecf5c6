"""The classes that a network gives to all points of a cloud, whole or square by square."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.clouds import Part, PartedCloud
from pcnn.datasets.readers.columns import PART
from pcnn.experiment.predictor import Predictor
from pcnn.files.bounded import forget_pages

#: Confidence is kept as a byte: so much is 1.
FULL = 255
#: Points of a cloud that is classified as a whole; larger ones are in squares.
WHOLE = 1_000_000
#: Points that a square with its margin holds, about; and on a device, with so much free memory for
#: each [bytes].
_SQUARE, _SQUARE_ON_DEVICE, _POINT_BYTES = 600_000, 2_000_000, 1 << 15
#: Largest edge of a square [voxels].
_LARGEST = 2048
#: Points of a cloud that tell how many lie in a square.
_SAMPLE = 1_000_000
#: Threads that sort parts into squares, and that read squares ahead of the network.
_WRITERS, _READERS = 4, 2
#: Share of the work that is done when all squares have their files.
_WRITTEN = 0.3

Square = tuple[int, int]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Classified:
    """Classes and confidence of the rows of a file."""

    classes: np.ndarray  # [P] uint8
    confidence: np.ndarray  # [P] uint8, 255 times the probability of the class
    returns: int = 0  # number of rows that are no missing returns
    note: str = ""  # how the cloud was cut into squares; empty where it was not

    @classmethod
    def empty(cls, points: int, folder: Path) -> Classified:
        """Rows without a class, in files of a folder."""
        classes, confidence = (
            np.memmap(folder / name, np.uint8, "w+", shape=(max(points, 1),))[:points]
            for name in ("classes", "confidence")
        )
        for first in range(0, points, PART):
            classes[first : first + PART] = IGNORE
            forget_pages(classes)
        return cls(classes, confidence)

    def put(self, rows: np.ndarray, scored: tuple[Tensor, Tensor], chosen: np.ndarray) -> None:
        """Set the classes of rows [M], which are these of the points that were looked at."""
        scores, inverse = scored
        if len(rows):
            probability, classes = scores.max(1)
            inverse = inverse[torch.from_numpy(chosen).to(inverse.device)]
            confidence = (probability * FULL).round().to(torch.uint8)
            self.classes[rows] = classes.to(torch.uint8)[inverse].cpu().numpy()
            self.confidence[rows] = confidence[inverse].cpu().numpy()

    def counts(self, classes: int) -> tuple[np.ndarray, np.ndarray]:
        """Number of points of every class [C], and the sum of their probabilities [C]."""
        number, sums = np.zeros(classes, np.int64), np.zeros(classes)
        for first in range(0, len(self.classes), PART):
            part = slice(first, first + PART)
            known = self.classes[part] != IGNORE
            of = self.classes[part][known]
            number += np.bincount(of, minlength=classes)
            sums += np.bincount(of, self.confidence[part][known] / FULL, minlength=classes)
            forget_pages(self.classes, self.confidence)
        return number, sums


def classify(
    predictor: Predictor,
    cloud: PartedCloud,
    folder: Path,
    tile: float | None = None,
    margin: float = 5.0,
    told: Callable[[float], None] = lambda share: None,
    look: Callable[[Part], None] = lambda part: None,
) -> Classified:
    """Classify a cloud of any size: whole, or where it is large square by square.

    Points of squares go to files of the folder. A square is classified with what lies within the
    margin around it, moved to its own middle. Memory follows the largest square, and a byte or two
    a point in files that are mapped. `told` hears which share is done, `look` sees points.
    """
    if tile is None and cloud.points <= WHOLE:
        part, found = cloud.whole(), Classified.empty(cloud.points, folder)
        scored = predictor.scored(predictor.cloud_of(part, cloud.path, cloud.in_map))
        found.put(part.rows, scored, np.arange(len(part)))
        look(part)
        return replace(found, returns=len(part))
    size = tile or _size_of_squares(predictor, cloud, margin)
    squares = Squares(folder, size, margin, predictor.in_channels - 3)
    points = squares.fill(cloud, lambda share: told(_WRITTEN * share))
    found = Classified.empty(cloud.points, folder)

    def read(square: Square) -> tuple[Part, np.ndarray, Cloud]:
        part, own = squares.read(square)
        return part, own, predictor.cloud_of(part, cloud.path, in_map=True, piece=True)

    chosen = sorted(squares.owners)
    for number, (part, own, one) in enumerate(_in_order(read, chosen, _READERS), 1):
        if number == 1:
            look(part)
        found.put(part.rows[own], predictor.scored(one), own)
        forget_pages(found.classes, found.confidence)
        told(_WRITTEN + (1 - _WRITTEN) * number / len(chosen))
    note = f"squares of {size:.4g} m, {len(chosen)} of them, each seen with {margin:g} m around"
    return replace(found, returns=points, note=note)


def _size_of_squares(predictor: Predictor, cloud: PartedCloud, margin: float) -> float:
    voxel, device = float(np.max(predictor.voxel_size)), predictor.device
    largest = max(_LARGEST * voxel, 4 * margin)
    if predictor.trained_crop is not None:
        largest = min(largest, max(2 * predictor.trained_crop, 2 * margin))
    most = _SQUARE
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        most = min(max(_SQUARE, free // _POINT_BYTES), _SQUARE_ON_DEVICE)
    return square_size(cloud, margin, most, max(2 * margin, 16 * voxel), largest)


def square_size(
    cloud: PartedCloud, margin: float, most: int, least: float, largest: float
) -> float:
    """Edge of squares of which none, with its margin, holds many more points than allowed."""
    places = cloud.sample(_SAMPLE)[:, :2]
    share = len(places) / max(cloud.points, 1)
    size = largest
    while True:
        squares = Counter(map(tuple, np.floor(places / size).astype(np.int64).tolist()))
        fullest = max(squares.values(), default=0) * (1 + 2 * margin / size) ** 2
        if fullest <= most * share or size <= least:
            return size
        size /= 2


class Squares:
    """Squares of a cloud, ``floor((x, y) / size)``, with what lies around each, in files."""

    def __init__(self, folder: Path, size: float, margin: float, channels: int) -> None:
        if not 0 < size < math.inf or not 0 <= margin <= size:
            raise ValueError(f"tile={size}, margin={margin}: 0 <= margin <= tile, 0 < tile")
        self.folder, self.size, self.margin = folder, size, margin
        self.owners: set[Square] = set()  # squares in which points lie
        kinds = ("row", "i8"), ("own", "?"), ("place", "f8", (3,)), ("channels", "f4", (channels,))
        self._record = np.dtype(list(kinds))

    def fill(self, cloud: PartedCloud, told: Callable[[float], None]) -> int:
        """Write the files; returns the number of points."""
        points = 0
        for number, (found, size) in enumerate(_in_order(self._cut, cloud, _WRITERS), 1):
            points += size
            for square, records in found.items():
                with self._path(square).open("ab") as file:
                    file.write(records.data)
                if records["own"].any():
                    self.owners.add(square)
            told(min(1.0, number * PART / cloud.points))
        return points

    def read(self, square: Square) -> tuple[Part, np.ndarray]:
        """The points in and around a square in the order of the file, and which are its own."""
        path = self._path(square)
        held = np.fromfile(path, self._record)
        path.unlink()
        held = held[np.argsort(held["row"], kind="stable")]
        # columns of their own: torch takes no records
        columns = (np.ascontiguousarray(held[name]) for name in ("row", "place", "channels"))
        return Part(*columns), np.flatnonzero(held["own"])

    def _path(self, square: Square) -> Path:
        return self.folder / f"{square[0]}_{square[1]}.tile"

    def _cut(self, part: Part) -> tuple[dict[Square, np.ndarray], int]:
        """Records by the square that sees them, and the number of points."""
        cells = np.floor(part.places[:, :2] / self.size).astype(np.int64)
        inside = part.places[:, :2] - cells * self.size  # [M, 2] in [0, size)
        far = np.ones_like(inside, dtype=bool)
        sees = {-1: inside <= self.margin, 0: far, 1: inside >= self.size - self.margin}
        rows, seen = [np.arange(len(part))], [cells]
        for step in set(product((-1, 0, 1), repeat=2)) - {(0, 0)} if self.margin else ():
            near = np.flatnonzero(sees[step[0]][:, 0] & sees[step[1]][:, 1])
            rows.append(near)
            seen.append(cells[near] + step)
        row, square = np.concatenate(rows), np.concatenate(seen)
        records = np.empty(len(row), self._record)
        records["row"], records["own"] = part.rows[row], np.arange(len(row)) < len(part)
        records["place"], records["channels"] = part.places[row], part.channels[row]
        return _grouped(square, records), len(part)


def _grouped(cells: np.ndarray, records: np.ndarray) -> dict[Square, np.ndarray]:
    """Records by their cell [M, 2]."""
    if not len(cells):
        return {}
    corner, width = cells.min(axis=0), int(np.ptp(cells[:, 1])) + 1
    numbers = (cells[:, 0] - corner[0]) * width + (cells[:, 1] - corner[1])
    few = numbers.max() < 1 << 16  # then numpy counts in place of comparing
    order = np.argsort(numbers.astype(np.uint16) if few else numbers, kind="stable")
    begins = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    squares = map(tuple, cells[order[begins]].tolist())
    return dict(zip(squares, np.split(records[order], begins[1:]), strict=True))


def _in_order(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield the results of a function in the order of the items, which threads work on."""
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
