"""Outputs of networks: their tensors, and copies of those that lie in memory of fixed size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from pcnn.geometry import Geometry
from pcnn.graphs.capture import NoGraph
from pcnn.maps.place import Part, place
from pcnn.tensor import SparseTensor

#: Difference between a graph and the eager network, as a share of the norm of the values.
AGREE = {torch.float64: 1e-7, torch.float32: 1e-2}
AGREE_HALF = 5e-2

#: Levels of an input in the order of the recipe; ``None``: not asked for.
Levels = Sequence[Geometry | None]


def features_of(output: Any) -> list[Tensor]:
    """The tensors of an output, of sparse ones their features."""
    parts = (p.features if isinstance(p, SparseTensor) else p for p in tree_leaves(output))
    return [part for part in parts if isinstance(part, Tensor)]


class Copies:
    """Tensors on memory of their own, copied in one launch."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def of(self, source: Tensor, rows: int | None = None) -> Tensor:
        """Memory for a tensor, or the first rows of it; empty until `fill`."""
        own = source if rows is None else source[:rows]
        made = torch.empty_like(own, memory_format=torch.contiguous_format)
        self._parts.append(Part(made, own))
        return made

    def fill(self) -> None:
        """Copy all that is not there yet."""
        place(self._parts)
        self._parts = []


class FixedOutput:
    """An output in memory of fixed size, and how it leads to that of an input."""

    def __init__(self, fixed: Any, levels: Levels, exact: Any, sites: Levels) -> None:
        """By an eager output and the levels of its input; `NoGraph` where it does not."""
        self._parts, self._spec = tree_flatten(fixed)
        pairs = zip(self._parts, tree_leaves(exact), strict=True)
        #: for every part the level that its rows are of; None: it has no spare rows
        self._levels = [_level_of(*pair, levels, sites) for pair in pairs]
        self.wanted = {level for level in self._levels if level is not None}

    def copies(self, fixed: Any, copies: Copies, sites: Levels | None = None) -> list[Tensor]:
        """The tensors of the output on memory of their own; without spare rows, given sites."""
        found = []
        for part, level in zip(tree_leaves(fixed), self._levels, strict=True):
            at = None if level is None or sites is None else sites[level]
            if isinstance(part, SparseTensor | Tensor):
                own = part.features if isinstance(part, SparseTensor) else part
                found.append(copies.of(own, None if at is None else at.rows))
        return found

    def rebuilt(self, tensors: Iterable[Tensor], sites: Levels) -> Any:
        """The output that such tensors make on exact sites."""
        found, parts = iter(tensors), list[Any]()
        for part, level in zip(self._parts, self._levels, strict=True):
            if not isinstance(part, SparseTensor | Tensor):
                parts.append(part)
                continue
            own: Any = next(found)
            at = None if level is None else sites[level]
            if at is not None and len(own) > at.rows:
                own = own[: at.rows]
            if isinstance(part, SparseTensor):
                assert at is not None
                own = SparseTensor(own, at)
            parts.append(own)
        return tree_unflatten(parts, self._spec)


def _level_of(own: Any, wanted: Any, levels: Levels, sites: Levels) -> int | None:
    if isinstance(own, SparseTensor):
        for at, exact in zip(levels, sites, strict=True):
            if at is own.geometry and exact is wanted.geometry:
                return levels.index(at)
        raise NoGraph("an output lies on sites that are no level of the input's")
    if not isinstance(own, Tensor):
        if not isinstance(own, int | float | str | None) or own != wanted:
            raise NoGraph(f"an output of type {type(own).__name__} belongs to one input")
        return None
    if own.shape == wanted.shape:
        return None
    for level, (at, exact) in enumerate(zip(levels, sites, strict=True)):
        if at is not None and exact is not None:
            rows = own.shape[:1] + wanted.shape[:1]
            if rows == (at.rows, exact.rows) and own.shape[1:] == wanted.shape[1:]:
                return level
    raise NoGraph(f"an output {list(own.shape)} has no shape of its own in memory of fixed size")


def check_agreement(found: Any, wanted: Any) -> None:
    """Hold the output of a graph against the eager one; waits for the device."""
    for own, other in zip(features_of(found), features_of(wanted), strict=True):
        exact = not own.is_floating_point()
        share = 0.0 if exact else AGREE.get(own.dtype, AGREE_HALF)
        if own.shape == other.shape:
            there = other.isfinite()
            a, b = own[there].double(), other[there].double()
            if not b.numel():
                continue
            off = (a - b).abs()
            # few values may be rounded further apart than most, where they are small differences
            if bool((off <= 5 * share * b.abs().max()).all() & (off.norm() <= share * b.norm())):
                continue
        raise NoGraph("in memory of fixed size, with spare rows, it computes other values")
