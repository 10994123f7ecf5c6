"""Losses of rows as CUDA graphs: value, gradient and counts of a step by one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pcnn.errors import first_line
from pcnn.graphs.capture import Capture, Work
from pcnn.graphs.fixed_input import Edges
from pcnn.losses import CrossEntropy, LovaszSoftmax, WeightedSum
from pcnn.maps.place import Part, place

#: Losses that ignored rows do not change, whatever their number.
OF_ROWS = (CrossEntropy, LovaszSoftmax, WeightedSum, nn.ModuleList)
#: Sizes of batches whose graphs are kept, and how much larger one is than the one before.
SIZES, RATIO = 24, 1.1

#: The loss of logits [N, C] and labels [N], and what else is counted of them.
Learnt = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def is_of_rows(loss: nn.Module, ignore_index: int) -> bool:
    """True if rows with this label change nothing, so that any number of them may be added."""
    parts = list(loss.modules())
    own = [part.ignore_index for part in parts if isinstance(part, CrossEntropy | LovaszSoftmax)]
    return all(type(part) in OF_ROWS for part in parts) and set(own) == {ignore_index}


class _Place:
    """Memory of fixed size for the rows of a batch, and what is computed there."""

    def __init__(self, logits: Tensor, labels: Tensor, learnt: Learnt) -> None:
        self._logits, self._labels, self._learnt = logits, labels, learnt
        self._replay: Work | None = None
        self._ran = False
        self.turn = 0

    def take(self, logits: Tensor, labels: Tensor, ignore_index: int) -> None:
        """Put rows in; those that are spare have no label that counts."""
        self.turn += 1
        own = Part(self._logits, logits.to(self._logits.dtype), 0.0)
        place([own, Part(self._labels, labels, ignore_index)])

    def work(self) -> None:
        logits = self._logits.detach().requires_grad_()
        with torch.enable_grad():
            loss, self.counts = self._learnt(logits, self._labels)
            (self.gradient,) = torch.autograd.grad(loss, logits)
        self.loss = loss.detach()

    def run(self, capture: Capture | None) -> None:
        """Compute: the first time one by one, which readies all that a graph needs."""
        if self._ran and self._replay is None and capture is not None:
            self._replay = capture(self.work)
        (self._replay or self.work)()
        self._ran = True


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, there: _Place) -> Tensor:
        ctx.there, ctx.turn, ctx.like = there, there.turn, (len(logits), logits.dtype)
        return there.loss.clone()

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if ctx.turn != ctx.there.turn:
            raise RuntimeError("the gradient of this loss is gone: another one was computed since")
        rows, dtype = ctx.like
        return (ctx.there.gradient[:rows] * grad).to(dtype), None


class LossGraphs:
    """The loss of rows, each size of batches in memory of its own, which a graph computes on."""

    def __init__(
        self, learnt: Learnt, ignore_index: int, capture: Capture, edges: Edges | None = None
    ) -> None:
        self.learnt, self.ignore_index = learnt, ignore_index
        self.reason: str | None = None  # why there are no graphs
        self._capture: Capture | None = capture
        self._edges = edges or Edges(ratio=RATIO)
        self._places: dict[Any, _Place] = {}

    def __call__(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """What `learnt` returns; its second part until the next call."""
        size = self._edges.above(len(logits))
        key = size, logits.shape[1], logits.dtype
        if key not in self._places:
            if len(self._places) >= SIZES or not len(logits):
                return self.learnt(logits, labels)
            half = logits.dtype in (torch.float16, torch.bfloat16)
            dtype = torch.float32 if half else logits.dtype
            memory = torch.zeros(size, logits.shape[1], dtype=dtype, device=logits.device)
            own = labels.new_full((size,), self.ignore_index)
            self._places[key] = _Place(memory, own, self.learnt)
        there = self._places[key]
        with torch.no_grad():
            there.take(logits.detach(), labels, self.ignore_index)
            try:
                there.run(self._capture)
            except RuntimeError as error:
                if self._capture is None:
                    raise
                self._capture, self.reason = None, first_line(error)  # nothing was computed
                there.run(None)
        loss: Tensor = _Loss.apply(logits, there)  # type: ignore[no-untyped-call]
        return loss, there.counts
