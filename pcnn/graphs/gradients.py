"""Gradients that every step writes to the same memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

#: The gradient of a parameter begins at a multiple of so many numbers, where wide reads begin.
ALIGNED = 64


class Gradients:
    """Memory for the gradients of parameters, in one piece for each dtype."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.pieces = self._pieces()
        self._views, self._spare = self._cut(self.pieces)
        self._addresses = [view.data_ptr() for view in self._views]

    def let_go(self) -> None:
        """Move gradients that still lie here to memory of their own: the next step writes here."""
        for parameter, address in zip(self.parameters, self._addresses, strict=True):
            if parameter.grad is not None and parameter.grad.data_ptr() == address:
                parameter.grad = parameter.grad.clone()

    def write(self, found: Sequence[Tensor | None]) -> None:
        """Keep the gradients of a step; ``None`` where its loss does not depend on a parameter.

        All else in the pieces is 0, so that their norm is that of the gradients.
        """
        pairs = list(zip(self._views, found, strict=True))
        gradients = [one for one in found if one is not None]
        others = [view for view, one in pairs if one is None]
        with torch.no_grad():
            torch._foreach_copy_([view for view, one in pairs if one is not None], gradients)
            # numbers between gradients too: clipping to a norm that is no number reaches them
            torch._foreach_zero_([*self._spare, *others])

    def views(self, in_place: bool) -> list[Tensor]:
        """Gradients of all parameters, here or on memory of their own; nothing else holds them."""
        pieces = self.pieces if in_place else [piece.clone() for piece in self.pieces]
        return self._cut(pieces)[0]

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
