"""`pcnn.predict`: classes of points, from files or memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.readers.clouds import PartedCloud, Reading, chosen_columns, open_parts
from pcnn.datasets.readers.columns import COLORS, Columns, full_color
from pcnn.errors import FileError
from pcnn.experiment.classify import Labelled, classify
from pcnn.experiment.devices import device_of
from pcnn.experiment.options import PredictOptions
from pcnn.experiment.predictor import FULL, Predictor, from_the_air
from pcnn.experiment.weights import suited, weights_file
from pcnn.files.pickles import array_of
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

    options: PredictOptions
    fill: Mapping[str, float]  # numbers for channels that clouds lack
    _loaded: dict[Path, Predictor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reading(Reading())  # which refuses what no file can have
        self.device = device_of(self.options.device)

    def label(
        self,
        opened: Callable[[Reading], PartedCloud],
        folder: Path,
        told: Callable[[float], None] = lambda share: None,
    ) -> Labelled:
        """Classify a cloud of any size by the network that suits it; see `classify`."""
        predictor, notes = self._suited(opened)
        cloud, doubts = predictor.fitted(opened(self._reading(predictor.reading)))
        done = classify(predictor, cloud, folder, self.options.tile, told)
        notes += [*predictor.notes, *done.notes]
        return replace(done, notes=notes, doubts=[*doubts, *done.doubts])

    def load(self, name: str | Path) -> Predictor:
        """The network of a name or a checkpoint."""
        path, given = weights_file(name), self.options
        if path not in self._loaded:
            self._loaded[path] = Predictor.load(path, self.device, given.allow_targets)
        return self._loaded[path]

    def _suited(self, opened: Callable[[Reading], PartedCloud]) -> tuple[Predictor, list[str]]:
        """The network for a cloud, by its span where none is named, and then why it is that one."""
        if self.options.model is not None:
            return self.load(self.options.model), []
        cloud = opened(self._reading(Reading(channels=())))
        places = cloud.sample(LOOKED_AT)
        if not len(places):
            raise FileError(cloud.path, "the cloud is empty: nothing tells whether it is a room")
        name, reason = suited("seg", [float(span(torch.from_numpy(places)))])
        if name != "seg_rooms" and from_the_air(places, cloud.points):
            name = "seg_aerial"
            reason = f"{name}: the cloud seems to have been seen from the air"
        return self.load(name), [reason]

    def _reading(self, own: Reading) -> Reading:
        given = self.options
        columns = chosen_columns(given.columns)
        return replace(
            own,
            columns=own.columns if columns is None else columns,
            fill=own.filled(self.fill),
            intensity_max=given.intensity_max or own.intensity_max,
            scale=given.scale,
        )


def predict(
    points: str | Path | np.ndarray | Tensor,
    model: str | Path | None = None,
    *,
    channels: Mapping[str, np.ndarray | Tensor] | None = None,
    fill: Mapping[str, float] | None = None,
    **options: Any,
) -> Prediction:
    """Label every point of a cloud.

    Args:
        points: a file of any format that `pcnn predict` reads, or [P, 3] numbers [m].
        model: a name of `pcnn.models.available` (``seg_streets``, ``seg_rooms``, ``seg_aerial``),
            or a checkpoint of a segmentation; None goes by the span of the cloud
            (`pcnn.registration.cloud_measures.span`), up to 20 m ``seg_rooms``, beyond it
            ``seg_aerial`` where it seems to have been seen from the air, else ``seg_streets``.
        channels: of points in memory, by name: ``intensity`` [P], ``colors`` [P, 3], or others [P].
            Colours beyond 1 are divided by 255, beyond 255 by 65,535.
        fill: numbers for channels that the cloud lacks, by name.
        **options: fields of `PredictOptions`, as ``device="cuda"`` or ``tile=50.0``.

    Raises:
        FileNotFoundError: no such file, or no such weights.
        ValueError: an option out of its range, points or channels that do not fit, a channel that
            the network needs and the cloud lacks, or a damaged file.
    """
    given = PredictOptions(model=None if model is None else str(model), **options)
    with TemporaryDirectory(prefix="pcnn-") as folder:
        done = Segmenters(given, fill or {}).label(
            partial(opened, points, channels or {}), Path(folder)
        )
        classes, confidence = np.array(done.classes), np.array(done.confidence)
    for note in done.notes:
        log.info("%s: %s", done.cloud.path, note)
    for doubt in done.doubts:
        log.warning("%s: %s", done.cloud.path, doubt)
    return Prediction(
        classes,
        confidence.astype(np.float32) / FULL,
        done.predictor.label_table[classes],
        done.predictor.class_names,
        done.predictor.colors,
        tuple(done.doubts),
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
    places = _numbers(points, "points")
    if places.ndim != 2 or places.shape[1] != 3:
        raise ValueError(
            f"points must be [P, 3], got {list(places.shape)}; give other columns by name, as in "
            "channels={'intensity': ...}"
        )
    columns: dict[str, np.ndarray] = {}
    for name, values in channels.items():
        column = _numbers(values, f"channel {name}")
        if column.shape[:1] != places.shape[:1]:
            raise ValueError(f"channel {name} has {len(column)} values for {len(places)} points")
        if name in ("colors", "colours", "rgb") and column.shape[1:] == (len(COLORS),):
            columns |= {color: column[:, k] for k, color in enumerate(COLORS)}
        elif column.ndim == 1:
            columns[name] = column
        else:
            raise ValueError(f"channel {name} must be [P], got {list(column.shape)}")
    table = Columns(Path("points"), places, columns, color_max=full_color(columns))
    return PartedCloud(table, reading)


def _numbers(values: np.ndarray | Tensor, name: str) -> np.ndarray:
    array = np.asarray(array_of(values) if isinstance(values, Tensor) else values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, got {array.dtype}")
    return array
