"""Which network labels a cloud: by name or file, or by the extent of the cloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from pcnn.experiment.catalogue import SHIPPED, NoWeightsError, weights_file
from pcnn.experiment.descriptors import INTERIORS_UP_TO
from pcnn.experiment.predictor import Predictor
from pcnn.registration.cloud_measures import extent

#: Points of a cloud that are looked at for its extent.
_SOME = 100_000
#: Edge of the cells of which each counts once in it [m].
_CELL = 0.5


@dataclass
class Segmenters:
    """Networks for segmentation, each loaded once.

    Args:
        device: where they compute.
        model: a name of the catalogue, or a checkpoint; None chooses by the extent of each cloud.
        allow_targets: packages of the user's own whose classes a checkpoint may name.
        folder: of the weights that come with the package.
    """

    device: torch.device
    model: str | Path | None = None
    allow_targets: Sequence[str] = ()
    folder: Path = SHIPPED
    _loaded: dict[str, Predictor] = field(default_factory=dict)

    def of(self, places: np.ndarray) -> tuple[Predictor, str]:
        """The network for a cloud, and why it is that one; the reason is empty where it was named.

        Args:
            places: [P, 3] some points of the cloud [m].

        Raises:
            NoWeightsError: no such file, or no such weights on this machine.
            FileError: a checkpoint of another task, or a damaged one.
        """
        if self.model is not None:
            return self.named(), ""
        name, why = chosen(places)
        try:
            return self._load(name), why
        except NoWeightsError as error:
            raise NoWeightsError(f"{why}; {error}") from None

    def named(self) -> Predictor:
        """The network that was named.

        Raises:
            ValueError: none was named; or as `of`.
        """
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
    """``rooms`` or ``streets`` by the extent of a cloud, and why.

    It is that of the cells that hold points: of a scan in a narrow street nine tenths of the points
    lie within a few metres of the sensor, those of its cells do not.

    Args:
        places: [P, 3] points [m].
    """
    some = places[:: -(-len(places) // _SOME)] if len(places) else np.zeros((1, 3))
    cells = np.unique(np.floor((some - some[0]) / _CELL), axis=0)
    size = extent(torch.from_numpy(cells * _CELL))
    name = "rooms" if size <= INTERIORS_UP_TO else "streets"
    return name, f"{name}: the cloud is {size:.3g} m wide (up to {INTERIORS_UP_TO:g} m: rooms)"
