"""A training of `train.py` that a suite measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training, and its length.

    Args:
        module: its data module.
        task: makes the Lightning module of the training, with new weights.
        trainer: makes the trainer, of callbacks and a number of steps.
        model: name of the network.
        engine: name of the engine.
        precision: of the training, as the trainer calls it.
        workload: what is trained, in words.
        about: settings that rows tell.
        steps: measured.
        warm_up: steps before those.
        where: the device.
        out: result file; ``None``: named after the suite and the device.
        print_rows: whether rows are printed as tables.
    """

    module: Any
    task: Callable[[], L.LightningModule]
    trainer: Callable[[list[L.Callback], int], L.Trainer]
    model: str
    engine: str
    precision: str
    workload: str
    about: Mapping[str, int | float | str]
    steps: int
    warm_up: int
    where: torch.device
    out: Path | None = None
    print_rows: bool = True
