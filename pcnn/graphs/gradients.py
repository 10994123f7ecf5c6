"""Gradients that every step writes to the same memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

#: The gradient of a parameter begins at a multiple of so many numbers, where wide reads begin.
ALIGNED = 64


class Gradients:
    """Memory for the gradients of parameters, in one piece for each dtype."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.pieces = self._pieces()
        self._views, self._spare = self._cut(self.pieces)
        # of several steps, where there are any
        self._sums: list[Tensor] = []
        self._sum_views: list[Tensor] = []
        self._reached: list[int] = []  # parameters that the loss depends on
        self._held: list[Tensor] = []

    def release(self) -> None:
        """Take the memory back: the step that comes writes there."""
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if parameter.grad is view:
                parameter.grad = None

    def write(self, found: Sequence[Tensor | None]) -> None:
        """Keep the gradients of a step; ``None`` where its loss does not depend on a parameter.

        All else in the pieces is 0, so that their norm is that of the gradients.
        """
        self._reached = [number for number, one in enumerate(found) if one is not None]
        gradients = [one for one in found if one is not None]
        others = [view for view, one in zip(self._views, found, strict=True) if one is None]
        with torch.no_grad():
            torch._foreach_copy_([self._views[number] for number in self._reached], gradients)
            # numbers between gradients too: clipping to a norm that is no number reaches them
            torch._foreach_zero_([*self._spare, *others])

    def cloned(self) -> list[Tensor]:
        """Gradients of all parameters on memory of their own."""
        views, _ = self._cut([piece.clone() for piece in self.pieces])
        return views

    def hand_over(self, sums: bool) -> list[Tensor]:
        """Add the gradients of a step to ``grad`` of the parameters, or put them there."""
        self._held = self._hand_over(sums)
        return self._held

    @contextmanager
    def in_pieces(self, optimizer: Optimizer) -> Iterator[None]:
        """Inside, an optimiser has one parameter for each tensor that `hand_over` returned.

        So what unscales, checks or clips all gradients does it in a few launches, and the host
        passes over no list of parameters. Nothing is changed where the optimiser has others.
        """
        groups = optimizer.param_groups
        own = {id(parameter) for parameter in self.parameters}
        if own != {id(parameter) for group in groups for parameter in group["params"]}:
            yield
            return
        stand_ins = [nn.Parameter(tensor) for tensor in self._held]
        for parameter, tensor in zip(stand_ins, self._held, strict=True):
            parameter.grad = tensor
        optimizer.param_groups = [{"params": stand_ins}]
        try:
            yield
        finally:
            optimizer.param_groups = groups

    def _hand_over(self, sums: bool) -> list[Tensor]:
        reached = [self.parameters[number] for number in self._reached]
        views = [self._views[number] for number in self._reached]
        if any(parameter.grad is not None for parameter in reached):
            for parameter in reached:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            there = [parameter.grad for parameter in reached if parameter.grad is not None]
            torch._foreach_add_(there, views)
            own = [self._sum_views[number] for number in self._reached] if self._sums else []
            held = bool(own) and all(a is b for a, b in zip(there, own, strict=True))
            if held:
                return self._sums
            return [one.grad for one in self.parameters if one.grad is not None]
        pieces = self.pieces
        if sums:
            if not self._sums:
                self._sums = self._pieces()
                self._sum_views, _ = self._cut(self._sums)
            pieces = self._sums
            torch._foreach_copy_(pieces, self.pieces)
            views = [self._sum_views[number] for number in self._reached]
        for parameter, view in zip(reached, views, strict=True):
            parameter.grad = view
        return pieces

    def _pieces(self) -> list[Tensor]:
        sizes: dict[torch.dtype, int] = {}
        for parameter in self.parameters:
            sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + _room(parameter)
        device = self.parameters[0].device
        return [torch.zeros(size, dtype=dtype, device=device) for dtype, size in sizes.items()]

    def _cut(self, pieces: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Views of the pieces, one a parameter, and what lies between them."""
        rest = {piece.dtype: piece for piece in pieces}
        views, spare = [], []
        for parameter in self.parameters:
            piece, own, room = rest[parameter.dtype], parameter.numel(), _room(parameter)
            views.append(piece[:own].view(parameter.shape))
            if room > own:
                spare.append(piece[own:room])
            rest[parameter.dtype] = piece[room:]
        return views, spare


def _room(parameter: nn.Parameter) -> int:
    return -(-parameter.numel() // ALIGNED) * ALIGNED
