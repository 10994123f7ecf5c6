"""The classes that a network gives to all points of a cloud, whole or square by square."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.clouds import Part, PartedCloud
from pcnn.datasets.readers.columns import PART
from pcnn.experiment.options import MARGIN
from pcnn.experiment.predictor import FULL, Predictor
from pcnn.files.bounded import forget_pages

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
class Labelled:
    """Classes of the rows of a cloud, and what is to be said of them."""

    predictor: Predictor
    cloud: PartedCloud
    classes: np.ndarray  # [P] uint8; `IGNORE` where a row is a missing return
    confidence: np.ndarray  # [P] uint8, `FULL` times the probability of the class
    notes: list[str] = field(default_factory=list)  # how the cloud was read
    doubts: list[str] = field(default_factory=list)  # why it is unlike those of the training

    @classmethod
    def empty(cls, predictor: Predictor, cloud: PartedCloud, folder: Path) -> Labelled:
        """Rows without a class, in files of a folder."""
        classes, confidence = (
            np.memmap(folder / name, np.uint8, "w+", shape=(max(cloud.points, 1),))[: cloud.points]
            for name in ("classes", "confidence")
        )
        for first in range(0, cloud.points, PART):
            classes[first : first + PART] = IGNORE
            forget_pages(classes)
        return cls(predictor, cloud, classes, confidence)

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Number of points of every class [C], and the sum of their probabilities [C]."""
        classes = len(self.predictor.class_names)
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
    told: Callable[[float], None] = lambda share: None,
) -> Labelled:
    """Classify a cloud of any size: whole, or where it is large square by square.

    Points of squares go to files of the folder. A square is classified with what lies within the
    margin around it, moved to its own middle. Memory follows the largest square, and a byte or two
    a point in files that are mapped. `told` hears which share is done.
    """
    done = Labelled.empty(predictor, cloud, folder)
    if tile is None and cloud.points <= WHOLE:
        part = cloud.whole()
        inputs = predictor.inputs(part, cloud.path, cloud.in_map)
        done.classes[part.rows], done.confidence[part.rows] = predictor.scored(inputs, cloud.path)
        done.doubts.extend(predictor.doubts(part))
        return done
    size = tile or _square_size(predictor, cloud)
    squares = Squares(folder, size, predictor.in_channels - 3)
    squares.fill(cloud, lambda share: told(_WRITTEN * share))

    def read(square: Square) -> tuple[Part, np.ndarray, Tensor]:
        part, own = squares.read(square)
        return part, own, predictor.inputs(part, cloud.path, in_map=True, piece=True)

    chosen = sorted(squares.owners)
    for number, (part, own, inputs) in enumerate(_in_order(read, chosen, _READERS), 1):
        if number == 1:
            done.doubts.extend(predictor.doubts(part))
        classes, confidence = predictor.scored(inputs, cloud.path)
        done.classes[part.rows[own]] = classes[own]
        done.confidence[part.rows[own]] = confidence[own]
        forget_pages(done.classes, done.confidence)
        told(_WRITTEN + (1 - _WRITTEN) * number / len(chosen))
    around = f"each seen with {MARGIN:g} m around"
    done.notes.append(f"squares of {size:.4g} m, {len(chosen)} of them, {around}")
    return done


def _square_size(predictor: Predictor, cloud: PartedCloud) -> float:
    """Edge of squares of which none, with its margin, holds many more points than allowed."""
    voxel, device = float(np.max(predictor.voxel_size)), predictor.device
    least, size = max(2 * MARGIN, 16 * voxel), max(_LARGEST * voxel, 4 * MARGIN)
    if predictor.trained_crop is not None:
        size = min(size, max(2 * predictor.trained_crop, 2 * MARGIN))
    most = _SQUARE
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        most = min(max(_SQUARE, free // _POINT_BYTES), _SQUARE_ON_DEVICE)
    places = cloud.sample(_SAMPLE)[:, :2]
    share = len(places) / max(cloud.points, 1)
    while True:
        squares = Counter(map(tuple, np.floor(places / size).astype(np.int64).tolist()))
        fullest = max(squares.values(), default=0) * (1 + 2 * MARGIN / size) ** 2
        if fullest <= most * share or size <= least:
            return size
        size /= 2


class Squares:
    """Squares of a cloud, ``floor((x, y) / size)``, with what lies around each, in files."""

    def __init__(self, folder: Path, size: float, channels: int) -> None:
        self.folder, self.size = folder, size
        self.owners: set[Square] = set()  # squares in which points lie
        kinds = ("row", "i8"), ("own", "?"), ("place", "f8", (3,)), ("channels", "f4", (channels,))
        self._record = np.dtype(list(kinds))

    def fill(self, cloud: PartedCloud, told: Callable[[float], None]) -> None:
        """Write the files."""
        for number, found in enumerate(_in_order(self._cut, cloud, _WRITERS), 1):
            for square, records in found.items():
                with self._path(square).open("ab") as file:
                    file.write(records.data)
                if records["own"].any():
                    self.owners.add(square)
            told(min(1.0, number * PART / cloud.points))

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

    def _cut(self, part: Part) -> dict[Square, np.ndarray]:
        """Records by the square that sees them."""
        cells = np.floor(part.places[:, :2] / self.size).astype(np.int64)
        inside = part.places[:, :2] - cells * self.size  # [M, 2] in [0, size)
        far = np.ones_like(inside, dtype=bool)
        sees = {-1: inside <= MARGIN, 0: far, 1: inside >= self.size - MARGIN}
        rows, seen = [np.arange(len(part))], [cells]
        for step in set(product((-1, 0, 1), repeat=2)) - {(0, 0)}:
            near = np.flatnonzero(sees[step[0]][:, 0] & sees[step[1]][:, 1])
            rows.append(near)
            seen.append(cells[near] + step)
        row, square = np.concatenate(rows), np.concatenate(seen)
        records = np.empty(len(row), self._record)
        records["row"], records["own"] = part.rows[row], np.arange(len(row)) < len(part)
        records["place"], records["channels"] = part.places[row], part.channels[row]
        return _grouped(square, records)


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
