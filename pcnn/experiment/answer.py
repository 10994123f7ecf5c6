"""The classes that a network gives to all points of a cloud, whole or square by square."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.clouds import Part, PartedCloud
from pcnn.datasets.readers.columns import PART
from pcnn.experiment.predictor import Predictor, Scored
from pcnn.experiment.squares import Square, Squares, in_order, square_size
from pcnn.files.arrays import forget_pages

#: Confidence is kept as a byte: so much is 1.
FULL = 255
#: Points of a cloud that is classified as a whole; larger ones are in squares.
WHOLE = 1_000_000
#: Points that a square with its margin holds, about; and on a device, with so much free memory for
#: each [bytes].
_SQUARE, _SQUARE_ON_DEVICE, _POINT_BYTES = 600_000, 2_000_000, 1 << 15
#: Largest edge of a square [voxels].
_LARGEST = 2048
#: Threads that read squares ahead of the network.
_READERS = 2
#: Share of the work that is done when the size of squares is known, and when all have their files.
_SIZED, _SPOOLED = 0.1, 0.3


@dataclass(frozen=True, eq=False)
class Answer:
    """Classes and confidence of the rows of a file."""

    classes: np.ndarray  # [P] uint8
    confidence: np.ndarray  # [P] uint8, 255 times the probability of the class
    returns: int = 0  # number of rows that are no missing returns
    note: str = ""  # how the cloud was cut into squares; empty where it was not

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
    """Classify a cloud as a whole; returns the points that were looked at, too."""
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
    told: Callable[[float], None] = lambda share: None,
    look: Callable[[Part], None] = lambda part: None,
) -> Answer:
    """Classify a cloud of any size square by square; what lies in two squares is blended.

    The points go to files, a square each. A square is classified with what lies within the margin
    around it, moved to its own middle. Near a border the probabilities of the squares that see a
    point are averaged, each weighted by how far within the square the point lies. Memory follows
    the largest square, and a byte or two a point in files that are mapped. `told` hears which share
    is done, `look` sees the first square.
    """

    def telling(read: PartedCloud, first: float, last: float) -> Iterator[Part]:
        for number, part in enumerate(read, 1):
            yield part
            told(first + (last - first) * min(1.0, number * PART / cloud.points))

    if size is None:
        voxel = float(np.max(predictor.voxel_size))
        largest = max(_LARGEST * voxel, 4 * margin)
        if predictor.trained_crop is not None:
            largest = min(largest, max(2 * predictor.trained_crop, 2 * margin))
        plain = replace(cloud, reading=cloud.reading.places_alone)
        limits = square_points(predictor.device), max(2 * margin, 16 * voxel), largest
        size = square_size(telling(plain, 0.0, _SIZED), margin, *limits)
    squares = Squares(folder, size, margin, predictor.in_channels - 3, len(predictor.class_names))
    chosen = squares.fill(telling(cloud, _SIZED, _SPOOLED))
    found = Answer.empty(cloud.points, folder)

    def read(square: Square) -> tuple[Square, Part, np.ndarray, Cloud]:
        part, slots = squares.read(square)
        return square, part, slots, predictor.cloud_of(part, cloud.path, in_map=True, piece=True)

    for number, (square, part, slots, points) in enumerate(in_order(read, chosen, _READERS), 1):
        if number == 1:
            look(part)
        _classify(predictor, squares, found, square, part, slots, points)
        told(_SPOOLED + (1 - _SPOOLED) * number / len(chosen))
    for rows, scores in squares.settled():
        found.put(rows, *(best.numpy() for best in best_classes(torch.from_numpy(scores))))
        forget_pages(found.classes, found.confidence)
    note = f"{len(chosen)} squares of {size:.4g} m, each seen with {margin:g} m around"
    return replace(found, returns=squares.points, note=note)


@torch.inference_mode()
def _classify(
    predictor: Predictor,
    squares: Squares,
    found: Answer,
    square: Square,
    part: Part,
    slots: np.ndarray,
    points: Cloud,
) -> None:
    """Keep the network's answer for the points that a square sees alone, and its votes."""
    scored = predictor.scored(points)
    alone, shared = np.flatnonzero(slots < 0), np.flatnonzero(slots >= 0)
    device = scored.scores.device
    found.put(part.rows[alone], *_best(scored, torch.from_numpy(alone).to(device)))
    rows = scored.inverse[torch.from_numpy(shared).to(device)]
    weights = squares.weights(square, part.places[shared])
    scores = scored.scores.half()[rows].cpu().numpy()
    squares.vote(slots[shared], part.rows[shared], weights, scores)
    forget_pages(found.classes, found.confidence)


def square_points(device: torch.device) -> int:
    """Points that a square with its margin holds at most: more where the device has the memory."""
    if device.type != "cuda":
        return _SQUARE
    free, _ = torch.cuda.mem_get_info(device)
    return min(max(_SQUARE, free // _POINT_BYTES), _SQUARE_ON_DEVICE)


def _best(scored: Scored, chosen: Tensor | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Class and confidence as a byte of points that were looked at; of all, or of these."""
    if not len(scored.inverse):
        return np.empty(0, np.uint8), np.empty(0, np.uint8)
    classes, confidence = best_classes(scored.scores)
    rows = scored.inverse if chosen is None else scored.inverse[chosen]
    return classes[rows].cpu().numpy(), confidence[rows].cpu().numpy()


def best_classes(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Class and confidence of rows of probabilities [N, C], both [N] uint8; 255 is certain."""
    probability, classes = scores.max(1)
    return classes.to(torch.uint8), (probability * FULL).round().to(torch.uint8)
