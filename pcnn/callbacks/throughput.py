"""How fast a training runs and what it waits for."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from pcnn.geometry import PointSet
from pcnn.lightning_internals import logged_step


def peak_memory(device: torch.device) -> float:
    """Return the peak memory of this process so far [MiB].

    On CUDA what torch allocated on the device, elsewhere the resident memory of the process.
    """
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
    """Log speed, waiting time and memory every `log_every_n_steps` batches.

    ``speed/points_per_second`` and ``speed/voxels_per_second`` count all ranks (this rank's figure
    times their number), ``speed/step_seconds`` is the wall time of a batch including the wait for
    it. ``speed/data_share`` is the share of that time spent waiting for the loader, as
    `pcnn.datamodules.batch_stream.BatchStream` counts it, and ``speed/between_share`` the share of
    everything between two training steps: that wait, moving a batch and planning its maps, and
    writing a checkpoint where one is due. Of a loader that does not count its waits both are the
    latter. Validations are left out. ``memory/peak_mib`` is the peak since the start of training.

    Figures are means over the batches since the last report, taken from host clocks. Nothing waits
    for the device that would not wait anyway. So on a GPU the time of a single batch would mean
    nothing, but the mean over many does. The very first batch (compilation, allocation) is left
    out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.latest: dict[str, float] = {}
        self._end: float | None = None  # when the batch before ended
        self._begin = 0.0
        self._loaded = 0.0  # seconds waited for the loader when the batch before ended
        self._reset()

    def _reset(self) -> None:
        self._batches = self._points = self._voxels = 0
        self._between = self._waited = self._spent = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the counts from zero."""
        if pl_module.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(pl_module.device)
        self._end = None
        self._reset()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note when the batch is there."""
        self._begin = time.perf_counter()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Add the batch, and report when it is time."""
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

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the validation out of the waiting time."""
        if self._end is not None:
            self._end = time.perf_counter()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the rest, so that short trainings have figures too."""
        if self._batches and not self.latest:
            self._report(trainer, pl_module)

    def _report(self, trainer: Trainer, pl_module: LightningModule) -> None:
        figures = {
            "speed/step_seconds": self._spent / self._batches,
            "speed/data_share": self._waited / self._spent if self._spent else 0.0,
            "speed/between_share": self._between / self._spent if self._spent else 0.0,
            "memory/peak_mib": peak_memory(pl_module.device),
        }
        for name, count in (("points", self._points), ("voxels", self._voxels)):
            if count and self._spent:
                rate = count / self._spent * trainer.world_size
                figures[f"speed/{name}_per_second"] = rate
        self.latest = figures
        # the step Lightning itself logs under (as its own monitors do)
        step = logged_step(trainer)
        for logger in trainer.loggers:
            logger.log_metrics(figures, step=step)
        self._reset()
