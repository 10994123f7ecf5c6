"""The classes that a network gives to all points of a cloud, whole or square by square."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.channels import Reading
from pcnn.datasets.readers.parts import PART, Part, PartedCloud
from pcnn.datasets.tile_spool import Square, TileSpool, groups, square_size
from pcnn.experiment.predictor import Predictor, Scored

#: Points of a cloud that is classified as a whole; larger ones are in squares.
WHOLE = 1_000_000
#: Points that a square with its margin holds, about.
_SQUARE = 600_000
#: Largest edge of a square [voxels].
_LARGEST = 2048
#: Confidence is kept as a byte.
_FULL = 255


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
        classes[:] = IGNORE
        return cls(classes, confidence)

    def put(self, rows: np.ndarray, classes: np.ndarray, probability: np.ndarray) -> None:
        """Set classes [M] of rows [M], and their probabilities."""
        self.classes[rows] = classes
        self.confidence[rows] = np.round(probability * _FULL)

    def counts(self, classes: int) -> tuple[np.ndarray, np.ndarray]:
        """Number of points of every class [C], and the sum of their probabilities [C]."""
        number, sums = np.zeros(classes, np.int64), np.zeros(classes)
        for first in range(0, len(self.classes), PART):
            part = slice(first, first + PART)
            known = self.classes[part] != IGNORE
            of = self.classes[part][known]
            number += np.bincount(of, minlength=classes)
            sums += np.bincount(of, self.confidence[part][known] / _FULL, minlength=classes)
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
    the largest square, and a byte or two a point in files that are mapped.

    Args:
        predictor: the network.
        cloud: the cloud, read twice.
        folder: an empty folder, for files.
        size: edge of a square [m]; None finds one at which squares hold 600,000 points at most.
        margin: how far around a square the network sees too [m].
        told: called with the share that is done.
        look: called with the points of the first square.

    Raises:
        FileError: as `Predictor.scored`.
        ValueError: a size or a margin out of range.
    """
    if size is None:
        voxel = float(np.max(predictor.voxel_size))
        largest = max(_LARGEST * voxel, 4 * margin)
        if predictor.trained_crop is not None:
            largest = min(largest, max(2 * predictor.trained_crop, 2 * margin))
        plain = replace(cloud, reading=places_alone(cloud.reading))
        size = square_size(plain, margin, _SQUARE, max(2 * margin, 16 * voxel), largest)
    spool = TileSpool(folder, size, margin, predictor.in_channels - 3)
    squares, returns = spool.fill(cloud)
    found = Answer.empty(cloud.points, folder)
    sums = _Sums(folder, len(predictor.class_names))
    for number, square in enumerate(squares):
        part = spool.read(square)
        if look is not None and number == 0:
            look(part)
        _classify(predictor, cloud.path, spool, square, part, found, sums)
        # squares whose neighbours are all done
        following = squares[number + 1][0] if number + 1 < len(squares) else None
        sums.finish(found, None if following is None else following - 1)
        if isinstance(found.classes, np.memmap):
            found = _fresh(found)
        if told is not None:
            told((number + 1) / len(squares))
    note = f"{len(squares)} squares of {size:.4g} m, each seen with {margin:g} m around"
    return replace(found, returns=returns, note=note)


def places_alone(reading: Reading) -> Reading:
    """The same without channels."""
    return replace(reading, channels=(), fill={}, by_place=False)


def _classify(
    predictor: Predictor,
    path: Path,
    spool: TileSpool,
    square: Square,
    part: Part,
    found: Answer,
    sums: _Sums,
) -> None:
    cloud = predictor.cloud_of(part, path, in_map=True)
    scored = predictor.scored(cloud)
    shared = spool.shared(square, part.places)
    alone = ~shared & spool.own(square, part.places)
    classes, probability = _best(scored)
    found.put(part.rows[alone], classes[alone], probability[alone])
    if shared.any():
        some = torch.from_numpy(np.flatnonzero(shared)).to(scored.inverse.device)
        scores = scored.scores[scored.inverse[some]].cpu().numpy()
        near = part.select(shared)
        sums.add(
            spool.squares_of(near.places), near.rows, spool.weights(square, near.places), scores
        )


def _best(scored: Scored) -> tuple[np.ndarray, np.ndarray]:
    """Class and probability of every point that was looked at."""
    if not len(scored.inverse):
        return np.empty(0, np.uint8), np.empty(0)
    probability, classes = scored.scores.max(1)
    inverse = scored.inverse
    return classes.to(torch.uint8)[inverse].cpu().numpy(), probability[inverse].cpu().numpy()


def _fresh(found: Answer) -> Answer:
    """The same files mapped again: pages that were written no more count as this process's."""
    files = []
    for values in (found.classes, found.confidence):
        assert isinstance(values, np.memmap)
        values.flush()
        files.append(np.memmap(str(values.filename), np.uint8, "r+"))
    return replace(found, classes=files[0], confidence=files[1])


@dataclass(frozen=True)
class _Sums:
    """Votes of several squares for the same points, in files by the square that owns these."""

    folder: Path
    classes: int  # C

    def add(
        self, squares: np.ndarray, rows: np.ndarray, weights: np.ndarray, scores: np.ndarray
    ) -> None:
        """Keep scores [M, C] of rows [M] that squares [M, 2] own, with weights [M]."""
        records = np.empty(len(rows), self._record)
        records["row"], records["weight"], records["scores"] = rows, weights, scores
        for (i, j), chosen in groups(squares):
            with (self.folder / f"{i}_{j}.sums").open("ab") as file:
                file.write(records[chosen].tobytes())

    def finish(self, found: Answer, before: int | None) -> None:
        """Settle the points of squares in columns before this one; None: of all."""
        for path in self.folder.glob("*.sums"):
            if before is not None and int(path.stem.split("_")[0]) >= before:
                continue
            held = np.fromfile(path, self._record)
            path.unlink()
            held = held[np.argsort(held["row"], kind="stable")]
            rows, begins = np.unique(held["row"], return_index=True)
            weight = np.add.reduceat(held["weight"], begins)
            total = np.add.reduceat(held["scores"] * held["weight"][:, None], begins, axis=0)
            total /= weight[:, None]
            found.put(rows, total.argmax(1).astype(np.uint8), total.max(1))

    @property
    def _record(self) -> np.dtype:
        return np.dtype([("row", "i8"), ("weight", "f4"), ("scores", "f2", (self.classes,))])
