"""Outputs of networks: their tensors, and copies of those that lie in memory of fixed size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry import Geometry
from pcnn.graphs.capture import NoGraph
from pcnn.maps.place import Part, place
from pcnn.tensor import SparseTensor

#: Difference between a graph and the eager network, as a share of the norm of the values.
AGREE = {torch.float64: 1e-7, torch.float32: 1e-2}
AGREE_HALF = 5e-2

#: For every tensor of an output the level that its rows are of; ``None``: it has no spare rows.
Form = list[int | None]


def parts_of(output: Any) -> Iterator[Any]:
    """The tensors and numbers of an output, in the order in which `mapped` comes to them."""
    if isinstance(output, dict):
        yield from chain.from_iterable(map(parts_of, output.values()))
    elif isinstance(output, list | tuple):
        yield from chain.from_iterable(map(parts_of, output))
    else:
        yield output


def features_of(output: Any) -> list[Tensor]:
    """The tensors of an output, of sparse ones their features."""
    parts = (p.features if isinstance(p, SparseTensor) else p for p in parts_of(output))
    return [part for part in parts if isinstance(part, Tensor)]


def mapped(output: Any, function: Callable[[Any], Any]) -> Any:
    """Lists, tuples and dictionaries with a function of every value."""
    if isinstance(output, dict):
        return {name: mapped(value, function) for name, value in output.items()}
    if isinstance(output, list):
        return [mapped(value, function) for value in output]
    if isinstance(output, tuple):
        values = [mapped(value, function) for value in output]
        return type(output)(*values) if hasattr(output, "_fields") else tuple(values)
    return function(output)


def form_of(
    fixed: Any, levels: Sequence[Geometry], exact: Any, sites: Sequence[Geometry | None]
) -> Form:
    """How an output in memory of fixed size, on these levels, leads to the eager one."""
    form: Form = []
    for own, wanted in zip(parts_of(fixed), parts_of(exact), strict=True):
        level = None
        if isinstance(own, SparseTensor):
            level = next((n for n, at in enumerate(levels) if at is own.geometry), None)
            if level is None or wanted.geometry is not sites[level]:
                raise NoGraph("an output lies on sites that are no level of the input's")
        elif isinstance(own, Tensor):
            level = _level_of(own, levels, wanted, sites)
        elif not isinstance(own, int | float | str | None) or own != wanted:
            raise NoGraph(f"an output of type {type(own).__name__} belongs to one input")
        form.append(level)
    return form


def _level_of(
    own: Tensor, levels: Sequence[Geometry], wanted: Tensor, sites: Sequence[Geometry | None]
) -> int | None:
    if own.shape == wanted.shape:
        return None
    pairs = list(zip(levels, sites, strict=True))
    for level, (at, exact) in enumerate(pairs):
        rows = (own.shape[0], wanted.shape[0]) if own.ndim else (-1, -1)
        if (
            exact is not None
            and rows == (at.rows, exact.rows)
            and own.shape[1:] == wanted.shape[1:]
        ):
            return level
    raise NoGraph(f"an output {list(own.shape)} has no shape of its own in memory of fixed size")


class Copies:
    """Tensors on memory of their own, copied in one launch."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._made: dict[int, tuple[Tensor, Tensor]] = {}  # each with its source, by whose id

    def of(self, source: Tensor, rows: int | None = None) -> Tensor:
        """Memory for a tensor, or the first rows of it; empty until `fill`."""
        if id(source) not in self._made:
            own = source if rows is None else source[:rows]
            made = torch.empty_like(own, memory_format=torch.contiguous_format)
            self._made[id(source)] = made, source
            self._parts.append(Part(made, own))
        return self._made[id(source)][0]

    def fill(self) -> None:
        """Copy all that is not there yet."""
        place(self._parts)
        self._parts = []


def rows_of(
    output: Any, form: Form, sites: Sequence[Geometry | None]
) -> Iterator[tuple[Tensor, int | None]]:
    """The tensors of an output, and how many of their rows are there; ``None``: all of them."""
    for part, level in zip(parts_of(output), form, strict=True):
        at = None if level is None else sites[level]
        rows = None if at is None else at.rows
        if isinstance(part, SparseTensor | Tensor):
            yield (part.features if isinstance(part, SparseTensor) else part), rows


class Rebuilt:
    """An output of new tensors, in the order of `rows_of`, on exact sites."""

    # no closure that calls itself: maps of every cloud would live until cycles are collected

    def __init__(
        self, found: Iterator[Tensor], form: Form, sites: Sequence[Geometry | None]
    ) -> None:
        self._found, self._form, self._sites = found, iter(form), sites

    def of(self, output: Any) -> Any:
        """The output that one in memory of fixed size stands for."""
        return mapped(output, self._part)

    def _part(self, part: Any) -> Any:
        level = next(self._form)
        if isinstance(part, SparseTensor):
            at = None if level is None else self._sites[level]
            assert at is not None
            return SparseTensor(next(self._found), at)
        return next(self._found) if isinstance(part, Tensor) else part


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
