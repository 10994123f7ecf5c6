"""Outputs of a network whose number of rows the host does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry.base import Finer
from pcnn.geometry.padding import Part
from pcnn.maps.place import place
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
    return mapped(output, fixed)


class Copies:
    """Copies of an output on memory of its own, made in two parts, each in one launch.

    Tensors that several parts of the output share stay shared.
    """

    def __init__(self, output: Any, points: int) -> None:
        self._points = points
        self._sites: dict[int, tuple[Tensor, Tensor]] = {}
        self._others: dict[int, tuple[Tensor, Tensor]] = {}
        #: what the copies are part of; empty memory until both parts are filled
        self.output = self._convert(output)

    def fill_sites(self) -> None:
        """Copy keys, counts and inverses, which are there before the layers run."""
        _fill(self._sites)

    def fill_features(self) -> None:
        """Copy what the layers computed."""
        _fill(self._others)

    def _convert(self, part: Any) -> Any:
        if isinstance(part, Tensor):
            return _twin(part, self._others)
        if not isinstance(part, FixedTensor):
            return mapped(part, self._convert)
        sites, inverses = self._sites, part.inverses
        if inverses is not None:
            first, *coarser = (_twin(inverse, sites) for inverse in inverses)
            inverses = first[: self._points], *coarser
        count = None if part.count is None else _twin(part.count, sites)
        features = _twin(part.features, self._others)
        return FixedTensor(features, _twin(part.keys, sites), count, inverses)


def _twin(tensor: Tensor, twins: dict[int, tuple[Tensor, Tensor]]) -> Tensor:
    if id(tensor) not in twins:
        own = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        twins[id(tensor)] = own, tensor
    return twins[id(tensor)][0]


def _fill(twins: dict[int, tuple[Tensor, Tensor]]) -> None:
    place([Part(own, source) for own, source in twins.values()])


def parts_of(output: Any) -> Iterator[SparseTensor | Tensor]:
    """The tensors of an output, in the order in which `mapped` comes to them."""
    if isinstance(output, SparseTensor | Tensor):
        yield output
    elif isinstance(output, dict):
        yield from chain.from_iterable(map(parts_of, output.values()))
    elif isinstance(output, list | tuple):
        yield from chain.from_iterable(map(parts_of, output))


def features_of(output: Any) -> list[Tensor]:
    """The tensors of an output, of sparse ones their features."""
    return [part.features if isinstance(part, SparseTensor) else part for part in parts_of(output)]


def mapped(output: Any, function: Callable[[Any], Any]) -> Any:
    """Lists, tuples and dictionaries with a function of every value; anything else as it is."""
    if isinstance(output, dict):
        return {name: function(value) for name, value in output.items()}
    if isinstance(output, list):
        return [function(value) for value in output]
    if isinstance(output, tuple):
        values = [function(value) for value in output]
        return type(output)(*values) if hasattr(output, "_fields") else tuple(values)
    return output
