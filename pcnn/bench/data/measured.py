"""What the data suite measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import lightning as L

from pcnn.datasets.placement import VoxelSize


@dataclass(frozen=True)
class Setting:
    """A training whose data path is measured.

    Args:
        module: data module of the training, a `pcnn.datamodules.CloudDataModule`.
        task: makes the Lightning module of the training, with new weights.
        trainer: makes the trainer, of callbacks and a number of steps.
        size: edge of a cell of the finest level [m].
        model: name of the network.
        engine: name of the engine.
        precision: of the training, as the trainer calls it.
        workload: what is loaded, in words.
        about: settings that rows tell.
        steps: measured.
        warm_up: steps before those.
    """

    module: Any
    task: Callable[[], L.LightningModule]
    trainer: Callable[[list[L.Callback], int], L.Trainer]
    size: VoxelSize
    model: str
    engine: str
    precision: str
    workload: str
    about: Mapping[str, int | float | str]
    steps: int
    warm_up: int
