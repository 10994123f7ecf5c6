"""`pcnn.predict`: classes of points, from files or memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.readers.clouds import PartedCloud, Reading, open_parts
from pcnn.datasets.readers.columns import COLORS, Columns
from pcnn.errors import FileError
from pcnn.experiment.catalogue import ROOMS_UP_TO, scene_of, weights_file
from pcnn.experiment.classify import FULL, classify
from pcnn.experiment.predictor import Predictor
from pcnn.registration.cloud_measures import LOOKED_AT, span

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Classes of the points of a cloud."""

    classes: np.ndarray  # [P] uint8, 0..C-1; 255 where a row is no point (NaN, or zeros)
    confidence: np.ndarray  # [P] float32 in 0..1, the probability of the class
    labels: np.ndarray  # [P] int64
    class_names: tuple[str, ...]  # C names
    colors: np.ndarray  # [C, 3] uint8
    doubts: tuple[str, ...] = ()  # why the cloud is unlike those that the network was trained on


@dataclass
class Segmenters:
    """Networks for segmentation, each loaded once."""

    device: torch.device  # where they compute
    model: str | Path | None = None  # a name of the catalogue, or a checkpoint
    allow_targets: Sequence[str] = ()
    _loaded: dict[Path, Predictor] = field(default_factory=dict)

    def suited(self, opened: Callable[[Reading], PartedCloud]) -> tuple[Predictor, str]:
        """The network for a cloud, by its span where none is named, and then why it is that one."""
        if self.model is not None:
            return self.load(self.model), ""
        cloud = opened(Reading(channels=()))
        places = torch.from_numpy(cloud.sample(LOOKED_AT))
        if not len(places):
            raise FileError(cloud.path, "the cloud is empty: nothing tells whether it is a room")
        indoors, spans = scene_of([span(places)])
        name = "seg_rooms" if indoors else "seg_streets"
        return self.load(name), f"{name}: {spans} (up to {ROOMS_UP_TO:g} m: rooms)"

    def load(self, name: str | Path) -> Predictor:
        """The network of a name or a checkpoint."""
        path = weights_file(name)
        if path not in self._loaded:
            self._loaded[path] = Predictor.load(path, self.device, self.allow_targets)
        return self._loaded[path]


def predict(
    points: str | Path | np.ndarray | Tensor,
    model: str | Path | None = None,
    *,
    channels: Mapping[str, np.ndarray | Tensor] | None = None,
    fill: Mapping[str, float] | None = None,
    tile: float | None = None,
    margin: float = 5.0,
    device: str = "cpu",
    allow_targets: Sequence[str] = (),
) -> Prediction:
    """Label every point of a cloud.

    Args:
        points: a file of any format that `pcnn predict` reads, or [P, 3] numbers [m].
        model: a name of `pcnn.models.available` (``streets``, ``rooms``), or a checkpoint of a
            segmentation; None goes by the span of the cloud
            (`pcnn.registration.cloud_measures.span`), up to 20 m ``rooms``, beyond it ``streets``.
        channels: of points in memory, by name: ``intensity`` [P], ``colors`` [P, 3], or others [P].
            Integer colours are divided by the largest value of their type.
        fill: numbers for channels that the cloud lacks, by name.
        tile: edge of squares in which the cloud is classified [m]; None: clouds of more than a
            million points, in squares of 600,000 points at most, on a GPU of two million.
        margin: how far around a square the network sees too [m].
        device: ``cpu`` or ``cuda``.
        allow_targets: packages of the user's own whose classes a checkpoint may name.

    Raises:
        FileNotFoundError: no such file, or no such weights.
        ValueError: points or channels that do not fit, a channel that the network needs and the
            cloud lacks, or a damaged file.
    """
    segmenters = Segmenters(torch.device(device), model, allow_targets)
    predictor, why = segmenters.suited(partial(opened, points, channels or {}))
    if why:
        log.info("%s", why)
    reading = replace(predictor.reading, fill=predictor.reading.filled(fill or {}))
    cloud, doubts = predictor.fitted(opened(points, channels or {}, reading))
    with TemporaryDirectory(prefix="pcnn-") as folder:
        found = classify(
            predictor,
            cloud,
            Path(folder),
            tile=tile,
            margin=margin,
            look=lambda part: doubts.extend(predictor.doubts(part)),
        )
        classes, confidence = np.array(found.classes), np.array(found.confidence)
    for doubt in doubts:
        log.warning("%s: %s", cloud.path, doubt)
    return Prediction(
        classes,
        confidence.astype(np.float32) / FULL,
        predictor.label_table[classes],
        predictor.class_names,
        predictor.colors[:-1],
        tuple(doubts),
    )


def opened(
    points: str | Path | np.ndarray | Tensor,
    channels: Mapping[str, np.ndarray | Tensor],
    reading: Reading,
) -> PartedCloud:
    """A cloud of a file or of memory."""
    if isinstance(points, str | Path):
        if channels:
            raise ValueError(f"{points}: a file has its own channels; give none beside it")
        return open_parts(Path(points), reading)
    places = _numbers(points)
    if places.ndim != 2 or places.shape[1] != 3:
        raise ValueError(
            f"points must be [P, 3], got {list(places.shape)}; give other columns by name, as in "
            "channels={'intensity': ...}"
        )
    columns: dict[str, np.ndarray] = {}
    for name, values in channels.items():
        column = _numbers(values)
        if column.shape[:1] != places.shape[:1]:
            raise ValueError(f"channel {name} has {len(column)} values for {len(places)} points")
        if name in ("colors", "colours", "rgb") and column.shape[1:] == (len(COLORS),):
            columns |= {color: column[:, k] for k, color in enumerate(COLORS)}
        elif column.ndim == 1:
            columns[name] = column
        else:
            raise ValueError(f"channel {name} must be [P], got {list(column.shape)}")
    return PartedCloud(Columns(Path("points"), places, columns), reading)


def _numbers(values: np.ndarray | Tensor) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
