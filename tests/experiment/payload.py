"""Targets of hostile configurations: every class and function here records that it ran."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.profilers import SimpleProfiler
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

from pcnn.datasets import OnVoxels
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.datasets.transforms.features import Elastic
from pcnn.datasets.transforms.mixes import LaserMix
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


class Loss(_Fires, nn.Module): ...


class Optimizer(_Fires, torch.optim.SGD): ...


class Task(_Fires, SegmentationTask): ...


class DataModule(_Fires, L.LightningDataModule): ...


class Trainer(_Fires, L.Trainer): ...


class Strategy(_Fires, SingleDeviceStrategy): ...


class Profiler(_Fires, SimpleProfiler): ...


class Precision(_Fires, MixedPrecision): ...


class Hook(_Fires, Callback): ...


class Logger(_Fires, CSVLogger): ...


class Voxels(_Fires, OnVoxels): ...


class Changes(_Fires, Augmentation): ...


class Mix(_Fires, LaserMix): ...


class Distortion(_Fires, Elastic): ...


class Views(_Fires, EvaluationViews): ...


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
