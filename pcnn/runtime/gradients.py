"""Gradients that every step writes to the same memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

#: The gradient of a parameter begins at a multiple of so many numbers, where wide reads begin.
ALIGNED = 64


class Gradients:
    """Memory for the gradients of parameters, in one piece for each dtype.

    Args:
        parameters: of a network, on one device.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.pieces = self._pieces()
        self._views = self._cut(self.pieces)
        # of several steps, where there are any
        self._sums: list[Tensor] = []
        self._sum_views: list[Tensor] = []
        self._reached: list[int] = []  # parameters that the loss depends on

    def release(self) -> None:
        """Take the memory back: the step that comes writes there."""
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if parameter.grad is view:
                parameter.grad = None

    def write(self, found: Sequence[Tensor | None]) -> None:
        """Keep the gradients of a step; ``None`` where its loss does not depend on a parameter."""
        self._reached = [number for number, one in enumerate(found) if one is not None]
        gradients = [one for one in found if one is not None]
        with torch.no_grad():
            torch._foreach_copy_([self._views[number] for number in self._reached], gradients)

    def hand_over(self, sums: bool) -> list[Tensor]:
        """Add the gradients of a step to ``grad`` of the parameters, or put them there.

        Args:
            sums: whether those of later steps are added to them.

        Returns:
            Tensors that hold ``grad`` of all parameters now, as few as there can be.
        """
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
            return self._sums if held else there
        pieces = self.pieces
        if sums:
            if not self._sums:
                self._sums = self._pieces()
                self._sum_views = self._cut(self._sums)
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

    def _cut(self, pieces: Sequence[Tensor]) -> list[Tensor]:
        """Views of the pieces, one a parameter."""
        rest = {piece.dtype: piece for piece in pieces}
        views = []
        for parameter in self.parameters:
            piece = rest[parameter.dtype]
            views.append(piece[: parameter.numel()].view(parameter.shape))
            rest[parameter.dtype] = piece[_room(parameter) :]
        return views


def _room(parameter: nn.Parameter) -> int:
    return -(-parameter.numel() // ALIGNED) * ALIGNED
