"""A real training, and the share of its time that it waits for data."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from pcnn.bench.data.check import check_loading, check_sample
from pcnn.bench.data.measured import Setting
from pcnn.bench.rows import Row
from pcnn.bench.verify import CheckFailed


def loop_rows(setting: Setting, figure: str) -> Iterator[Row]:
    """Train, and measure the time of a step and what of it is spent waiting for the loader.

    The device is waited for before the first measured step and after the last one, never between.
    ``wall_ms`` is the time of a step, waits included; ``data_share`` the share of it that the
    training waited for a batch, ``between_share`` that of everything between two steps (the wait,
    moving the batch, planning its maps on the host); ``longest_wait_ms`` the longest single wait.

    Raises:
        CheckFailed: workers deliver other batches than this process makes, or the loss is not
            finite.
    """
    check_sample(setting.module.dataset("train"), (0, 0))
    check_loading(setting.module)
    watch = Watch(setting.warm_up)
    trainer = setting.trainer([watch], setting.warm_up + setting.steps)
    trainer.fit(setting.task(), setting.module)
    if not math.isfinite(watch.loss):
        raise CheckFailed(f"{setting.model}: the loss of the training is {watch.loss}")
    step = watch.seconds / len(watch.waits)
    yield Row(
        what="training",
        workload=setting.workload,
        engine=setting.engine,
        n=watch.rows // len(watch.waits),
        dtype=setting.precision,
        model=setting.model,
        wall_ms=1e3 * step,
        memory_mb=watch.memory_mb,
        params={
            "data_share": round(sum(watch.waits) / watch.seconds, 4),
            "between_share": round(watch.between / watch.seconds, 4),
            "wait_ms": round(1e3 * statistics.median(watch.waits), 3),
            "longest_wait_ms": round(1e3 * max(watch.waits), 3),
            "points": watch.points // len(watch.waits),
            "batch_size": int(setting.module.batch_size),
            "workers": int(setting.module.workers),
            "cores": len(os.sched_getaffinity(0)),
            "steps": len(watch.waits),
            **setting.about,
        },
        figure=figure,
        checked=True,
    )


class Watch(Callback):
    """Times of a training's steps.

    Args:
        warm_up: steps that do not count.

    Attributes:
        seconds: from the first counted step to the last [s].
        waits: seconds that each step waited for its batch.
        between: seconds between steps, waits included.
        points: of all batches.
        rows: of all batches.
        loss: the last one.
        memory_mb: peak memory of the device.
    """

    def __init__(self, warm_up: int) -> None:
        self.warm_up = warm_up
        self.seconds = self.between = self.loss = 0.0
        self.waits: list[float] = []
        self.points = self.rows = 0
        self.memory_mb: float | None = None
        self._done = 0
        self._began = self._end = self._waited = 0.0
        self._outputs: Any = None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Add what lay between the step before and this one."""
        if self._done < self.warm_up:
            return
        waited = _waited(trainer)
        self.waits.append(waited - self._waited)
        self._waited = waited
        self.between += time.perf_counter() - self._end
        self.points += batch.n_points
        self.rows += batch.tensor.features.shape[0]

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Begin to count after the last step of the warm-up."""
        self._done += 1
        self._outputs = outputs
        if self._done == self.warm_up:
            _wait_for(pl_module.device)
            self._began = time.perf_counter()
            self._waited = _waited(trainer)
        self._end = time.perf_counter()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End with the last step."""
        _wait_for(pl_module.device)
        self.seconds = time.perf_counter() - self._began
        self.loss = float(self._outputs["loss"])
        if pl_module.device.type == "cuda":
            self.memory_mb = torch.cuda.max_memory_allocated(pl_module.device) / 2**20


def _waited(trainer: Trainer) -> float:
    loader: Any = trainer.train_dataloader
    return float(loader.seconds_waited)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
