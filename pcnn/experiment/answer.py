"""The classes that a network gives to all points of a cloud, whole or square by square."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pcnn.ahead import in_order
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.clouds import Part, PartedCloud
from pcnn.datasets.readers.columns import PART
from pcnn.datasets.tile_spool import Square, TileSpool, square_size
from pcnn.experiment.predictor import Predictor, Scored
from pcnn.experiment.square_votes import FULL, SquareVotes, best_classes
from pcnn.files.mapped import forget_pages

#: Points of a cloud that is classified as a whole; larger ones are in squares.
WHOLE = 1_000_000
#: Points that a square with its margin holds, about.
_SQUARE = 600_000
#: Largest edge of a square [voxels].
_LARGEST = 2048
#: The same on a device with so much free memory for each [bytes]; the host holds a few squares.
_SQUARE_ON_DEVICE, _POINT_BYTES = 2_000_000, 1 << 15
#: Threads that read squares ahead of the network.
_READERS = 2
#: Share of the work that is done when the size of squares is known, and when all have their files.
_SIZED, _SPOOLED = 0.1, 0.3


@dataclass(frozen=True, eq=False)
class Answer:
    """Classes and confidence of the rows of a file.

    Args:
        classes: [P] uint8, 0..C-1, or ``IGNORE`` where a row is no return or lies beyond the crop.
        confidence: [P] uint8, 255 times the probability of the class.
        returns: number of rows that are no missing returns.
        note: how the cloud was cut into squares; empty where it was not.
    """

    classes: np.ndarray
    confidence: np.ndarray
    returns: int = 0
    note: str = ""

    @classmethod
    def empty(cls, points: int, folder: Path | None = None) -> Answer:
        """Rows without a class, in memory or in files of a folder."""
        if folder is None or not points:
            classes, confidence = np.empty(points, np.uint8), np.zeros(points, np.uint8)
        else:
            classes, confidence = (
                np.memmap(folder / name, np.uint8, "w+", shape=(points,))
                for name in ("classes", "confidence")
            )
        for first in range(0, points, PART):
            classes[first : first + PART] = IGNORE
            forget_pages(classes)
        return cls(classes, confidence)

    def put(self, rows: np.ndarray, classes: np.ndarray, confidence: np.ndarray) -> None:
        """Set classes [M] uint8 of rows [M], and their confidence [M] uint8."""
        self.classes[rows] = classes
        self.confidence[rows] = confidence

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


def answer(
    predictor: Predictor, cloud: PartedCloud, crop: float | None = None
) -> tuple[Answer, Part]:
    """Classify a cloud as a whole; returns the points that were looked at, too.

    Args:
        predictor: the network.
        cloud: the cloud.
        crop: points further from the origin, horizontally [m], get no class.

    Raises:
        FileError: as `Predictor.scored`, or a cloud of missing returns alone.
    """
    part = cloud.whole()
    scored = predictor.scored(predictor.cloud_of(part, cloud.path, cloud.in_map), crop)
    found = Answer.empty(cloud.points)
    best = _best(scored)
    found.put(part.rows[scored.rows.numpy()], *best)
    seen = part if crop is None else part.select(scored.rows.numpy())
    return replace(found, returns=len(part)), seen


def answer_in_squares(
    predictor: Predictor,
    cloud: PartedCloud,
    folder: Path,
    size: float | None,
    margin: float,
    told: Callable[[float], None] | None = None,
    look: Callable[[Part], None] | None = None,
) -> Answer:
    """Classify a cloud of any size square by square; what lies in two squares is blended.

    The points go to files, a square each. A square is classified with what lies within the margin
    around it, moved to its own middle. Near a border the probabilities of the squares that see a
    point are averaged, each weighted by how far within the square the point lies. Memory follows
    the largest square, and a byte or two a point in files that are mapped. Threads read the squares
    to come, and keep the answers of those before, while the network works.

    Args:
        predictor: the network.
        cloud: the cloud, read twice.
        folder: an empty folder, for files.
        size: edge of a square [m]; None finds one at which squares hold `square_points` at most.
        margin: how far around a square the network sees too [m].
        told: called with the share that is done, from 0 to 1.
        look: called with the points of the first square.

    Raises:
        FileError: as `Predictor.scored`.
        ValueError: a size or a margin out of range.
    """
    say = told or (lambda share: None)
    if size is None:
        voxel = float(np.max(predictor.voxel_size))
        largest = max(_LARGEST * voxel, 4 * margin)
        if predictor.trained_crop is not None:
            largest = min(largest, max(2 * predictor.trained_crop, 2 * margin))
        plain = replace(cloud, reading=cloud.reading.places_alone)
        size = square_size(
            _telling(plain, say, 0.0, _SIZED),
            margin,
            square_points(predictor.device),
            max(2 * margin, 16 * voxel),
            largest,
        )
    spool = TileSpool(folder, size, margin, predictor.in_channels - 3)
    squares, returns = spool.fill(_telling(cloud, say, _SIZED, _SPOOLED))
    kept = _Kept(
        Answer.empty(cloud.points, folder),
        SquareVotes(folder, len(predictor.class_names), predictor.device),
    )

    def read(square: Square) -> _Read:
        return _read(predictor, cloud.path, spool, square, square == squares[0])

    with ThreadPoolExecutor(1) as keeper:  # one thread: answers are kept in the order of squares
        keeping: Future[None] = keeper.submit(lambda: None)
        readers = _READERS if predictor.device.type == "cuda" else 1  # on a CPU the network is slow
        for number, held in enumerate(in_order(read, squares, readers)):
            if look is not None and held.part is not None:
                look(held.part)
            found = _classify(predictor, held)
            keeping.result()
            # squares whose neighbours are all done
            following = squares[number + 1][0] if number + 1 < len(squares) else None
            before = None if following is None else following - 1
            keeping = keeper.submit(kept.keep, held, found, before)
            say(_SPOOLED + (1 - _SPOOLED) * (number + 1) / len(squares))
        keeping.result()
    note = f"{len(squares)} squares of {size:.4g} m, each seen with {margin:g} m around"
    return replace(kept.found, returns=returns, note=note)


def square_points(device: torch.device) -> int:
    """Points that a square with its margin holds at most: more where the device has the memory."""
    if device.type != "cuda":
        return _SQUARE
    free, _ = torch.cuda.mem_get_info(device)
    return min(max(_SQUARE, free // _POINT_BYTES), _SQUARE_ON_DEVICE)


def _telling(
    cloud: PartedCloud, told: Callable[[float], None], first: float, last: float
) -> Iterator[Part]:
    """The parts of a cloud; tells which share is read, between the first and the last."""
    for number, part in enumerate(cloud):
        yield part
        told(first + (last - first) * min(1.0, (number + 1) * PART / cloud.points))


@dataclass(frozen=True, eq=False)
class _Read:
    """A square before it is classified.

    Args:
        part: its points, with those around it; None where it is not the first.
        cloud: the same as the network takes them.
        alone: [A] positions of its own points that no other square sees.
        shared: [S] positions of the others, by the square that owns them.
        owners: where the points of every such square begin and end among these.
        weights: [S] float32, how much this square's answer counts.
    """

    part: Part | None
    cloud: Cloud
    alone: np.ndarray
    shared: np.ndarray
    owners: dict[Square, tuple[int, int]]
    weights: np.ndarray


def _read(
    predictor: Predictor, path: Path, spool: TileSpool, square: Square, looked_at: bool
) -> _Read:
    part = spool.read(square)
    cloud = predictor.cloud_of(part, path, in_map=True, piece=True)
    near = spool.shared(square, part.places)
    shared = np.flatnonzero(near)
    places = part.places[shared]
    order, owners = spool.by_owner(places)
    weights = spool.weights(square, places)[order]
    alone = ~near if spool.margin else spool.own(square, part.places)
    held = part if looked_at else None
    return _Read(held, cloud, np.flatnonzero(alone), shared[order], owners, weights)


@dataclass(frozen=True, eq=False)
class _Found:
    """The network's answer for a square.

    Args:
        classes: [A] uint8 of the points that are its alone.
        confidence: [A] uint8.
        scores: [S, C] float16, probabilities of the others.
    """

    classes: np.ndarray
    confidence: np.ndarray
    scores: np.ndarray


@torch.inference_mode()
def _classify(predictor: Predictor, held: _Read) -> _Found:
    scored = predictor.scored(held.cloud)
    device = scored.scores.device
    classes, confidence = _best(scored, torch.from_numpy(held.alone).to(device))
    rows = scored.inverse[torch.from_numpy(held.shared).to(device)]
    return _Found(classes, confidence, scored.scores.half()[rows].cpu().numpy())


@dataclass
class _Kept:
    """What is known of a cloud, while squares are classified."""

    found: Answer
    votes: SquareVotes

    def keep(self, held: _Read, found: _Found, before: int | None) -> None:
        """Keep the answer of a square, and settle squares in columns before this one; None: all."""
        assert held.cloud.point_index is not None  # a square's cloud has its places in the file
        places = held.cloud.point_index.numpy()
        self.found.put(places[held.alone], found.classes, found.confidence)
        self.votes.add(held.owners, places[held.shared], held.weights, found.scores)
        for rows, classes, confidence in self.votes.settled(before):
            self.found.put(rows, classes, confidence)
        forget_pages(self.found.classes, self.found.confidence)


def _best(scored: Scored, chosen: Tensor | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Class and confidence as a byte of points that were looked at; of all, or of these."""
    if not len(scored.inverse):
        return np.empty(0, np.uint8), np.empty(0, np.uint8)
    classes, confidence = best_classes(scored.scores)
    rows = scored.inverse if chosen is None else scored.inverse[chosen]
    return classes[rows].cpu().numpy(), confidence[rows].cpu().numpy()
