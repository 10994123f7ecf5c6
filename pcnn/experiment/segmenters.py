"""Which network labels a cloud: by name or file, or by the span of the cloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from pcnn.errors import FileError
from pcnn.experiment.catalogue import ROOMS_UP_TO, scene_of, weights_file
from pcnn.experiment.predictor import Predictor
from pcnn.registration.cloud_measures import span


@dataclass
class Segmenters:
    """Networks for segmentation, each loaded once."""

    device: torch.device  # where they compute
    model: str | Path | None = None  # a name of the catalogue, or a checkpoint
    allow_targets: Sequence[str] = ()
    _loaded: dict[Path, Predictor] = field(default_factory=dict)

    def of(self, places: np.ndarray, path: Path) -> tuple[Predictor, str]:
        """The network for a cloud, and why it is that one."""
        if not len(places):
            raise FileError(path, "the cloud is empty: nothing tells whether it is a room")
        name, why = chosen(places)
        return self._load(name), why

    def named(self) -> Predictor:
        """The network that was named."""
        if self.model is None:
            raise ValueError("no network was named")
        return self._load(self.model)

    def _load(self, name: str | Path) -> Predictor:
        path = weights_file(name)
        if path not in self._loaded:
            self._loaded[path] = Predictor.load(path, self.device, self.allow_targets)
        return self._loaded[path]


def chosen(places: np.ndarray) -> tuple[str, str]:
    """``seg_rooms`` or ``seg_streets``, by the rule of `scene_of`, and why."""
    found = scene_of([span(torch.from_numpy(places))])
    name = "seg_rooms" if found.indoors else "seg_streets"
    return name, f"{name}: {found.spans} (up to {ROOMS_UP_TO:g} m: rooms)"
