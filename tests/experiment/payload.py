"""Targets of hostile configurations: every class and function here records that it ran."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

from pcnn.datasets import OnVoxels
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.tasks import EvaluationViews, SegmentationTask

RAN: list[str] = []


def fire(*_: Any, **__: Any) -> Any:
    """A function."""
    RAN.append("fire")
    return 1.0


class _Fires:
    def __new__(cls, *_: Any, **__: Any) -> Any:
        """A class says so before its constructor sees an argument."""
        RAN.append(cls.__name__)
        return super().__new__(cls)


BASES: dict[str, type] = {
    "Loss": nn.Module,
    "Optimizer": torch.optim.SGD,
    "Task": SegmentationTask,
    "DataModule": L.LightningDataModule,
    "Trainer": L.Trainer,
    "Strategy": SingleDeviceStrategy,
    "Hook": Callback,
    "Logger": CSVLogger,
    "Voxels": OnVoxels,
    "Changes": Augmentation,
    "Views": EvaluationViews,
}
for _name, _base in BASES.items():
    globals()[_name] = type(_name, (_Fires, _base), {"__module__": __name__})


class Reduced:
    """A pickle that runs a function when it is read."""

    def __reduce__(self) -> Any:
        """Ask the reader to call `fire`."""
        return fire, ()


class Plain(nn.Module):
    """A network of a user's own, which does nothing bad."""

    def __init__(self, out_channels: int, loss: nn.Module | None = None) -> None:
        super().__init__()
        self.out_channels, self.loss = out_channels, loss
