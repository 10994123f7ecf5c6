"""The start of a run: kernels compiled side by side before the first batch; how long it took."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from pcnn.callbacks.progress import TrainingProgress
from pcnn.kernels.recorded import Launch, compile_all
from pcnn.tensor import SparseTensor

log = logging.getLogger(__name__)

#: Work that is done sooner shows no progress: kernels that were compiled before are read.
QUIET_SECONDS = 1.0


class WarmUp(Callback):
    """Compile what a run needs on all cores, before its first batch; report how it started.

    On a CUDA device the sources of maps begin to compile in processes of their own while loaders
    read the first batch. Then the network runs once without its Triton kernels, which writes down
    the variants that this batch needs, and these are compiled side by side; so for the first batch
    of every size. Of several ranks on a machine one compiles, for the first batch alone.
    """

    def __init__(self, ahead: bool = True) -> None:
        super().__init__()
        self.ahead = ahead
        self.start: dict[str, float] = {}
        self._warm: set[tuple[Any, ...]] = set()  # stages and sizes whose kernels are compiled
        self._known: set[Launch] = set()  # variants that are
        self._sources: subprocess.Popen[bytes] | None = None
        self._began = self._arrived = self._compiled = 0.0
        self._first_step = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._began = time.perf_counter()
        device = trainer.strategy.root_device
        ours = trainer.local_rank == 0 and device.type == "cuda" and self.ahead
        if ours and self._sources is None:
            from pcnn.kernels.compiler import compile_sources_ahead

            self._sources = compile_sources_ahead(torch.cuda.get_device_capability(device))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.start, self._first_step = {}, trainer.global_step

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any
    ) -> None:
        arrived = time.perf_counter()
        variants = self._compile("train", trainer, pl_module, batch)
        if "variants" not in self.start:
            self.start["variants"] = variants
            self._arrived, self._compiled = arrived, time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if "all" in self.start or trainer.global_step == self._first_step:
            return
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize(pl_module.device)
        marks = self._began, self._arrived, self._compiled, time.perf_counter()
        spans = (round(b - a, 3) for a, b in pairwise(marks))
        self.start |= dict(zip(("data", "kernels", "step"), spans, strict=True))
        self.start["all"] = round(marks[-1] - marks[0], 3)
        say = _say(trainer)
        if say is not None:
            text = "first step after {all:.1f} s: data {data:.1f}, kernels {kernels:.1f}, "
            say((text + "step {step:.1f}").format(**self.start))

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any, **__: Any
    ) -> None:
        self._compile("evaluation", trainer, pl_module, batch)

    on_test_batch_start = on_validation_batch_start

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._sources is not None:
            self._sources.wait()

    def _compile(self, stage: str, trainer: Trainer, task: Any, batch: Any) -> int:
        """Compile the kernels of a batch that are not compiled yet; their number."""
        if not self.ahead or task.device.type != "cuda" or not hasattr(task, "inputs"):
            return 0
        # on every rank, so at the first batch: norms that are synchronised wait for each other
        sizes = _sizes(task.inputs(batch)) if trainer.world_size == 1 and batch.batch_size else ()
        if (stage, *sizes) in self._warm:
            return 0
        self._warm.add((stage, *sizes))
        found = self._launches(stage, trainer, task, batch)
        launches = [launch for launch in found if launch not in self._known]
        self._known.update(launches)
        if trainer.local_rank == 0:
            compile_shown(launches, task.device, _say(trainer))
        if trainer.world_size > 1:
            trainer.strategy.barrier("kernels")
        if trainer.local_rank > 0:  # reads what is there by now
            compile_shown(launches, task.device, None)
        return len(launches)

    def _launches(self, stage: str, trainer: Trainer, task: Any, batch: Any) -> list[Launch]:
        from pcnn.runtime.observed import in_fixed_memory, launches_of

        inputs = task.inputs(batch) if batch.batch_size else ()
        try:
            if stage == "train" and getattr(task, "cuda_graphs", False):
                inputs = [in_fixed_memory(task.net, x) for x in inputs]
            with trainer.precision_plugin.forward_context():
                return launches_of(task.net, inputs, backward=stage == "train")
        except Exception as error:  # a network of the user's own may refuse meaningless values
            log.warning("kernels are compiled at their first launch, not ahead: %s", error)
            return []


def _sizes(inputs: Sequence[SparseTensor]) -> tuple[int, ...]:
    """Edges above the rows of the inputs: within one bucket kernels are the same, or nearly."""
    from pcnn.graphs.fixed_input import Edges

    return tuple(Edges().above(len(x.features)) for x in inputs)


def compile_shown(
    launches: Sequence[Launch], device: torch.device, say: Callable[[str], None] | None
) -> int:
    """Compile variants on all cores; says so where that takes longer than reading them."""
    began, size = time.monotonic(), 0
    for done, code in enumerate(compile_all(launches, device), 1):
        size += code
        if say is not None and time.monotonic() - began > QUIET_SECONDS:
            say(f"compiling kernels, kept for later runs: {len(launches) - done}")
            say = None
    return size


def _say(trainer: Trainer) -> Callable[[str], None] | None:
    found = trainer.progress_bar_callback
    return found.say if isinstance(found, TrainingProgress) else None
