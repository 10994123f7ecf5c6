"""A callback that times the steps of a training, then looks into some."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch.profiler import ProfilerActivity, profile

from pcnn.bench.step.ranges import ActionRanges, module_ranges
from pcnn.bench.step.reading import Event


class StepWatch(L.Callback):
    """Times steps as they are, then traces some more.

    The device is waited for before the first measured step and after the last one, never between.

    Args:
        warm_up: steps that do not count.
        steps: that are timed.
        traced: that are traced after them.
        ranges: of the trainer.

    Attributes:
        seconds: from the first timed step to the end of the last on the device [s].
        each: seconds of every timed step on the host [s].
        steady: whether every timed step did as others before it: it replayed a CUDA graph, or steps
            of this training are none.
        waited: that the timed steps waited for the loader [s].
        rows: input rows of the timed steps.
        losses: of the timed steps.
        allocations: of memory on the device, from the cache of torch.
        segments: of these, from the driver.
        memory_mb: peak memory of the device.
        events: of the trace.
    """

    def __init__(self, warm_up: int, steps: int, traced: int, ranges: ActionRanges) -> None:
        self.warm_up, self.steps, self.traced, self.ranges = warm_up, steps, traced, ranges
        self.seconds = self.waited = 0.0
        self.each: list[float] = []
        self.steady: list[bool] = []
        self.rows = self.allocations = self.segments = 0
        self.losses: list[torch.Tensor] = []
        self.memory_mb: float | None = None
        self.events: list[Event] = []
        self._done = 0
        self._began = self._end = self._loaded = 0.0
        self._counted = 0, 0
        self._replays: int | None = None
        self._tracing = ExitStack()
        self._profiler: profile | None = None

    @property
    def total(self) -> int:
        """Steps of the training."""
        return self.warm_up + self.steps + self.traced

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Count the rows of a timed step."""
        if self.warm_up <= self._done < self.warm_up + self.steps:
            self.rows += rows_of(pl_module, batch)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Begin and end what is measured."""
        self._done += 1
        timed = self._done - self.warm_up
        device = pl_module.device
        replays: int | None = pl_module.replays  # type: ignore[assignment]  # as `rows_of`
        is_steady = replays is None or replays != self._replays
        self._replays = replays
        if timed == 0:
            self._begin(trainer, device)
        elif 0 < timed <= self.steps:
            now = time.perf_counter()
            self.each.append(now - self._end)
            self.steady.append(is_steady)
            self._end = now
            self.losses.append(outputs["loss"].detach().clone())
        if timed == self.steps:
            self._finish(trainer, device)
            self._trace(pl_module)
        elif timed == self.steps + self.traced:
            self._read(device)

    def _begin(self, trainer: L.Trainer, device: torch.device) -> None:
        wait_for(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self._counted, self._loaded = allocations(device), loaded(trainer)
        self._began = self._end = time.perf_counter()

    def _finish(self, trainer: L.Trainer, device: torch.device) -> None:
        wait_for(device)
        self.seconds = time.perf_counter() - self._began
        self.waited = loaded(trainer) - self._loaded
        now = allocations(device)
        self.allocations, self.segments = (b - a for a, b in zip(self._counted, now, strict=True))
        if device.type == "cuda":
            self.memory_mb = torch.cuda.max_memory_allocated(device) / 2**20

    def _trace(self, task: L.LightningModule) -> None:
        activities = [ProfilerActivity.CPU]
        if task.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=activities, with_stack=True)
        self._tracing.enter_context(module_ranges(task))
        self._tracing.enter_context(self._profiler)
        self.ranges.on = True

    def _read(self, device: torch.device) -> None:
        self.ranges.on = False
        wait_for(device)
        self._tracing.close()
        assert self._profiler is not None  # tracing has begun
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(path))
            self.events = json.loads(path.read_text(errors="replace"))["traceEvents"]
        self._profiler = None


def rows_of(task: L.LightningModule, batch: Any) -> int:
    """Input rows of a step."""
    inputs = task.inputs(batch)  # type: ignore[operator]  # of every task of this package
    return sum(int(tensor.features.shape[0]) for tensor in inputs)


def wait_for(device: torch.device) -> None:
    """Let a device finish."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def allocations(device: torch.device) -> tuple[int, int]:
    """Allocations so far, and how many of them asked the driver."""
    if device.type != "cuda":
        return 0, 0
    found = torch.cuda.memory_stats(device)
    return (
        int(found.get("allocation.all.allocated", 0)),
        int(found.get("segment.all.allocated", 0)),
    )


def loaded(trainer: L.Trainer) -> float:
    """Seconds that the training has waited for batches."""
    loader: Any = trainer.train_dataloader
    return float(loader.seconds_waited)
