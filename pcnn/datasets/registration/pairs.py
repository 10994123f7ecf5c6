"""A pair of clouds and how they belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from pcnn.metrics.registration.pair_results import PairId


@dataclass(frozen=True, eq=False)
class RegistrationPair:
    """Two clouds of a scene with their true transform."""

    scene: str  # scene or sequence
    target: int  # index of the target cloud, i of gt.log
    source: int  # index of the source cloud, j
    transform: Tensor  # [4, 4] float64, maps the source into the target's frame
    information: Tensor | None = None  # [6, 6] float64 of gt.info; None where the set has none
    overlap: float | None = None  # share of the source that the target sees
    index: int = 0  # place in the scene's ground truth, from 0

    @property
    def id(self) -> PairId:
        return PairId(self.scene, self.target, self.source)


class PairDataset(Protocol):
    """The part of a data set that registration needs."""

    #: the set and its list of pairs, e.g. ``3DLoMatch``
    name: str
    #: whose thresholds apply, ``threedmatch`` or ``kitti``
    benchmark: str
    #: which truth the figures are measured against, e.g. ``legacy``
    ground_truth: str
    #: ``real`` or ``simulated``
    source_kind: str
    #: folder of the set
    root: Path
    #: in the order of the official lists
    pairs: Sequence[RegistrationPair]

    def cloud(self, scene: str, index: int) -> Tensor:
        """Points [P, 3] float32 of a cloud, in its own frame [m]."""
        ...

    def notes(self) -> list[str]:
        """Return remarks that belong beside the figures, a line each."""
        ...
