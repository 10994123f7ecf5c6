"""Outputs of a network whose number of rows the host does not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry.base import Finer
from pcnn.tensor import SparseTensor


@dataclass(frozen=True, eq=False)
class FixedTensor:
    """Features of sites that are the first of a fixed number of rows.

    Args:
        features: ``[rows, C]``; what lies behind the sites is undefined.
        keys: ``[rows]`` int64 packed coordinates (`pcnn.geometry.KeyFormat`), sorted.
        count: ``[1]`` int32 on the device, rows that are sites; ``None``: all of them.
        inverses: from the points up to the sites (`Geometry.inverses`): ``[P]`` int64 first; those
            of coarser levels name rows of the level before.
    """

    features: Tensor
    keys: Tensor
    count: Tensor | None
    inverses: Finer

    def rows(self) -> int:
        """Number of sites; waits for the device."""
        return len(self.features) if self.count is None else int(self.count)

    @property
    def inverse(self) -> Tensor:
        """``[P]`` int64 row of every point.

        Raises:
            ValueError: no inverses lead back to points.
        """
        if self.inverses is None:
            raise ValueError(
                "no inverses lead from these sites back to points; take an output of the network "
                "on sites made by the floor of the points' cells"
            )
        rows, *coarser = self.inverses
        for above in coarser:
            rows = above[rows]
        return rows

    def at_points(self) -> Tensor:
        """Features ``[P, C]`` of the row of every point; nothing waits.

        Raises:
            ValueError: as `inverse`.
        """
        return self.features.index_select(0, self.inverse)


def fixed(output: Any) -> Any:
    """A network's output with a `FixedTensor` for every `SparseTensor` in it."""
    if isinstance(output, SparseTensor):
        at = output.geometry
        return FixedTensor(output.features, at.keys, at.count, at.inverses())
    return _mapped(output, fixed)


def copied(output: Any, points: int) -> Any:
    """A copy of an output on memory of its own, of which the first ``points`` points count.

    One launch for all tensors of a dtype; tensors that several parts share stay shared.
    """
    copies: dict[int, tuple[Tensor, Tensor]] = {}

    def copy(part: Any) -> Any:
        if isinstance(part, Tensor):
            if id(part) not in copies:
                copies[id(part)] = part, torch.empty_like(part)
            return copies[id(part)][1]
        if not isinstance(part, FixedTensor):
            return _mapped(part, copy)
        inverses = part.inverses
        if inverses is not None:
            first, *others = (copy(inverse) for inverse in inverses)
            inverses = first[:points], *others
        count = None if part.count is None else copy(part.count)
        return FixedTensor(copy(part.features), copy(part.keys), count, inverses)

    result = copy(output)
    by_dtype: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
    for source, own in copies.values():
        by_dtype.setdefault(source.dtype, []).append((own, source))
    for pairs in by_dtype.values():
        targets, sources = (list(side) for side in zip(*pairs, strict=True))
        torch._foreach_copy_(targets, sources)
    return result


def _mapped(output: Any, function: Callable[[Any], Any]) -> Any:
    """Lists, tuples and dictionaries with a function of every value."""
    if isinstance(output, dict):
        return {name: function(value) for name, value in output.items()}
    if isinstance(output, list):
        return [function(value) for value in output]
    if isinstance(output, tuple):
        values = [function(value) for value in output]
        return type(output)(*values) if hasattr(output, "_fields") else tuple(values)
    return output
