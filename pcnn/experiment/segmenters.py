"""Which network labels a cloud: by name or file, or by the span of the cloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from pcnn.errors import FileError
from pcnn.experiment.catalogue import ROOMS_UP_TO, SHIPPED, NoWeightsError, scene_of, weights_file
from pcnn.experiment.predictor import Predictor
from pcnn.registration.cloud_measures import span


@dataclass
class Segmenters:
    """Networks for segmentation, each loaded once."""

    device: torch.device  # where they compute
    model: str | Path | None = None  # a name of the catalogue, or a checkpoint
    allow_targets: Sequence[str] = ()
    folder: Path = SHIPPED  # of the weights that come with the package
    _loaded: dict[str, Predictor] = field(default_factory=dict)

    def of(self, places: np.ndarray, path: Path) -> tuple[Predictor, str]:
        """The network for a cloud, and why it is that one;
        the reason is empty where it was named.
        """
        if self.model is not None:
            return self.named(), ""
        if not len(places):
            raise FileError(path, "the cloud is empty: nothing tells whether it is a room")
        name, why = chosen(places)
        try:
            return self._load(name), why
        except NoWeightsError as error:
            raise NoWeightsError(f"{why}; {error}") from None

    def named(self) -> Predictor:
        """The network that was named."""
        if self.model is None:
            raise ValueError("no network was named")
        return self._load(self.model)

    def _load(self, name: str | Path) -> Predictor:
        key = str(name)
        if key not in self._loaded:
            path = weights_file(name, self.folder)
            self._loaded[key] = Predictor.load(path, self.device, self.allow_targets)
        return self._loaded[key]


def chosen(places: np.ndarray) -> tuple[str, str]:
    """``rooms`` or ``streets``, by the rule of `scene_of`, and why."""
    found = scene_of([span(torch.from_numpy(places))])
    name = "seg_rooms" if found.indoors else "seg_streets"
    return name, f"{name}: {found.spans} (up to {ROOMS_UP_TO:g} m: rooms)"
