"""How fast a training runs and what it waits for."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from pcnn.callbacks.lightning_internals import leave_unwatched, logged_step
from pcnn.geometry import PointSet


def peak_memory(device: torch.device) -> float:
    """Peak so far [MiB]: of torch's memory on a CUDA device, elsewhere of the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, KiB elsewhere


def batch_size_of(batch: Any) -> tuple[int, int]:
    """Points and voxels of a batch, from the host alone; 0 for what it does not have."""
    inputs = getattr(batch, "inputs", None) or (getattr(batch, "tensor", None),)
    points = voxels = 0
    for tensor in inputs:
        rows = 0 if tensor is None else int(tensor.features.shape[0])
        if isinstance(getattr(tensor, "geometry", None), PointSet):
            points += rows
        else:
            voxels += rows
    if hasattr(batch, "points"):  # a batch of training counts points that it does not hold
        points = int(getattr(batch, "n_points", len(batch.points)))
    return points, voxels


class Throughput(Callback):
    """Log speed, waiting time and memory every `log_every_n_steps` batches, as means over these.

    ``speed/points_per_second`` and ``speed/voxels_per_second`` count all ranks,
    ``speed/step_seconds`` is the wall time of a batch with the wait for it, ``speed/data_share``
    the share of that spent waiting for the loader, ``speed/between_share`` that of everything
    between two steps. Validations and the first batch are left out; nothing waits for the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.latest: dict[str, float] = {}  # the figures reported last
        self._end: float | None = None  # when the batch before ended
        self._begin = 0.0
        self._loaded = 0.0  # seconds waited for the loader when the batch before ended
        self._reset()

    def _reset(self) -> None:
        self._batches = self._points = self._voxels = 0
        self._between = self._waited = self._spent = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        leave_unwatched(trainer)
        if pl_module.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(pl_module.device)
        self._end = None
        self._reset()

    def on_train_batch_start(self, *_: Any) -> None:
        self._begin = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        now = time.perf_counter()
        loaded: float | None = getattr(trainer.train_dataloader, "seconds_waited", None)
        if self._end is not None:
            points, voxels = batch_size_of(batch)
            self._batches += 1
            self._points += points
            self._voxels += voxels
            between = self._begin - self._end
            self._between += between
            self._waited += between if loaded is None else loaded - self._loaded
            self._spent += now - self._end
        self._end = now
        self._loaded = loaded or 0.0
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # set out of sight
        if self._batches >= max(every, 1):
            self._report(trainer, pl_module)

    def on_validation_end(self, *_: Any) -> None:
        if self._end is not None:
            self._end = time.perf_counter()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the rest, so that short trainings have figures too."""
        if self._batches and not self.latest:
            self._report(trainer, pl_module)

    def _report(self, trainer: Trainer, pl_module: LightningModule) -> None:
        spent = self._spent or 1.0
        self.latest = {
            "speed/step_seconds": self._spent / self._batches,
            "speed/data_share": self._waited / spent,
            "speed/between_share": self._between / spent,
            "memory/peak_mib": peak_memory(pl_module.device),
        }
        for name, count in (("points", self._points), ("voxels", self._voxels)):
            if count:
                self.latest[f"speed/{name}_per_second"] = count / spent * trainer.world_size
        for logger in trainer.loggers:
            logger.log_metrics(self.latest, step=logged_step(trainer))
        self._reset()
