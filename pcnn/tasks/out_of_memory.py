"""Batches that do not fit into the memory of a device: left out, or computed in parts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pcnn.lightning_internals import is_accumulating

log = logging.getLogger(__name__)

OutOfMemory = Literal["raise", "skip", "split"]

#: Settings that need less memory, the cheapest first.
LEVERS = (
    "a smaller dataset.batch_size with global_batch_size (the same steps), trainer.precision="
    "16-mixed, recompute=[0] (activations of the finest level are computed again), a smaller "
    "dataset.crop or dataset.point_max; trainer.out_of_memory=split or skip for rare batches"
)
#: Gradients are averaged in pieces of so many numbers.
_PIECE = 1 << 24


class MemoryGuard:
    """Training steps that survive a batch without room, the same on all ranks.

    The step of a batch runs behind a stand-in for its loss, so that Lightning's closure goes on
    whatever happens. Where forward or backward run out of memory, the batch is computed in halves
    (``split``), or in halves of these, each weighted by its share of the rows. Where a sample has
    no room, or with ``skip``, the gradients of the whole step become zero, on every rank: the step
    leaves the weights to momentum and decay. Norms see the parts one after the other, and losses
    over a batch (Lovasz) are those of the parts. Gradients are averaged over ranks here, behind
    backward, as a rank that leaves a batch out would keep the others waiting inside it.
    """

    def __init__(self, task: LightningModule, split: bool) -> None:
        self._task, self._split = task, split
        self._inner: Callable[[Any, int], Tensor] = task.training_step  # type: ignore[assignment]
        self._batch: tuple[Any, int] = (None, 0)
        self._loss: Tensor | None = None
        self._carrier = torch.zeros(())
        self._lost = False  # a batch of this step
        self._begun = False  # gradients of this step are there
        self.counts = torch.zeros(2)  # on the device: steps left out, and batches in parts

    def begin(self) -> None:
        """Take over the steps of a training."""
        self._task.__dict__["training_step"] = self.step
        self.counts = torch.zeros(2, device=self._task.device)
        model = self._task.trainer.strategy.model
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = False

    def end(self) -> None:
        """Give the steps back."""
        self._task.__dict__.pop("training_step", None)
        self._loss = None

    def step(self, batch: Any, batch_idx: int) -> Tensor:
        """A number with the value of the loss, 0 where it could not be computed."""
        self._batch, self._loss = (batch, batch_idx), None
        with suppress(torch.OutOfMemoryError):  # `backward` finds no loss
            self._loss = self._inner(batch, batch_idx)
        value = torch.zeros((), device=self._task.device) if self._loss is None else self._loss
        self._carrier = value.detach().float().clone().requires_grad_()
        return self._carrier

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss behind a number that `step` returned, scaled as that was."""
        (scale,) = torch.autograd.grad(loss, self._carrier)
        done = self._loss is not None and fits(self._loss.backward, scale.to(self._loss.dtype))
        self._loss = None  # and its activations
        if not done:
            self._again(scale)
        self._batch, self._begun = (None, 0), True
        if not is_accumulating(self._task.trainer):
            self._average()

    def _again(self, scale: Tensor) -> None:
        batch, number = self._batch
        # what a part of backward has added cannot be told from what was there
        fresh = not self._begun
        if fresh:
            self._task.zero_grad()
        done = self._split and fresh and self._in_parts(batch, number, scale)
        how = "computed in parts" if done else "left out, with its step"
        log.warning(
            "rank %d, behind step %d: %d samples need more memory than the device has; they are %s."
            "\npossible: %s",
            self._task.global_rank,
            self._task.global_step,
            batch.batch_size,
            how,
            LEVERS,
        )
        self._lost |= not done
        self.counts[1] += float(done)

    def _in_parts(self, batch: Any, number: int, scale: Tensor) -> bool:
        """Whether a batch had room in halves, or in halves of these."""
        parts: list[tuple[Any, int]] = [(batch, 0)]
        while True:
            halved = [part.halves() or [(part, rows)] for part, rows in parts]
            if not any(len(halves) > 1 for halves in halved):
                return False
            parts = [half for halves in halved for half in halves]
            total = max(sum(rows for _, rows in parts), 1)
            if self._task.device.type == "cuda":
                torch.cuda.empty_cache()
            self._task.zero_grad()  # of parts that had no room
            if all(fits(self._one, part, number, scale * (rows / total)) for part, rows in parts):
                return True

    def _one(self, part: Any, number: int, scale: Tensor) -> None:
        self._task.__dict__["log"] = _nothing  # figures of a part are none of the batch
        try:
            with self._task.trainer.precision_plugin.train_step_context():
                loss = self._inner(part, number)
        finally:
            del self._task.__dict__["log"]
        loss.backward(scale.to(loss.dtype))

    @torch.no_grad()
    def _average(self) -> None:
        if self._task.trainer.world_size == 1 and not self._lost:
            self._begun = False
            return
        trained = [one for one in self._task.parameters() if one.requires_grad]
        lost = torch.full((), float(self._lost), device=self._task.device)
        self._lost = self._begun = False
        if self._task.trainer.world_size > 1:
            torch.distributed.all_reduce(lost)
            average(trained)
        self.counts[0] += lost > 0
        for one in trained:
            if one.grad is not None:
                one.grad.masked_fill_(lost > 0, 0)


def fits(call: Callable[..., Any], *arguments: Any) -> bool:
    """Call, and say whether there was memory for it; what it held is freed where there was none."""
    try:
        call(*arguments)
    except torch.OutOfMemoryError:
        return False
    return True


def average(parameters: list[nn.Parameter]) -> None:
    """Average gradients over all ranks; absent ones count as zero."""
    world = torch.distributed.get_world_size()
    pieces: dict[tuple[torch.dtype, int], list[Tensor]] = {}
    held = 0
    for one in parameters:
        if one.grad is None:
            one.grad = torch.zeros_like(one)
        held += one.grad.numel()
        pieces.setdefault((one.grad.dtype, held // _PIECE), []).append(one.grad)
    for piece in pieces.values():
        flat = torch.cat([gradient.reshape(-1) for gradient in piece]).div_(world)
        torch.distributed.all_reduce(flat)
        for gradient, part in zip(piece, flat.split([one.numel() for one in piece]), strict=True):
            gradient.copy_(part.view_as(gradient))


def share_buffers(module: nn.Module) -> None:
    """Give all ranks the buffers of the first one, as running statistics are."""
    for buffer in module.buffers():
        torch.distributed.broadcast(buffer, 0)


def _nothing(*arguments: Any, **named: Any) -> None:
    pass
