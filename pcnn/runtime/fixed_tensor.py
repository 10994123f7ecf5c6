"""Outputs of a network whose number of rows the host does not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pcnn.tensor import SparseTensor


@dataclass(frozen=True, eq=False)
class FixedTensor:
    """Features of sites that are the first of a fixed number of rows.

    Args:
        features: ``[rows, C]``; what lies behind the sites is undefined.
        keys: ``[rows]`` int64 packed coordinates (`pcnn.geometry.KeyFormat`), sorted.
        count: ``[1]`` int32 on the device, rows that are sites; ``None``: all of them.
        inverse: ``[P]`` int64 row of every point; ``None`` where no inverses lead to points.
    """

    features: Tensor
    keys: Tensor
    count: Tensor | None
    inverse: Tensor | None

    def rows(self) -> int:
        """Number of sites; waits for the device."""
        return len(self.features) if self.count is None else int(self.count)

    def at_points(self) -> Tensor:
        """Features ``[P, C]`` of the row of every point; nothing waits.

        Raises:
            ValueError: no inverses lead back to points.
        """
        if self.inverse is None:
            raise ValueError(
                "no inverses lead from these sites back to points; take an output of the network "
                "on sites made by the floor of the points' cells"
            )
        return self.features.index_select(0, self.inverse)


def fixed(output: Any) -> Any:
    """A network's output with a `FixedTensor` for every `SparseTensor` in it."""

    def convert(x: SparseTensor) -> FixedTensor:
        geometry = x.geometry
        inverse = geometry.point_rows() if geometry.inverses() is not None else None
        return FixedTensor(x.features, geometry.keys, geometry.count, inverse)

    return _mapped(output, SparseTensor, convert)


def copied(output: Any, points: int) -> Any:
    """A copy of an output on memory of its own, of which the first ``points`` points count."""

    def copy(x: FixedTensor) -> FixedTensor:
        inverse = None if x.inverse is None else x.inverse[:points].clone()
        count = None if x.count is None else x.count.clone()
        return FixedTensor(x.features.clone(), x.keys.clone(), count, inverse)

    return _mapped(_mapped(output, Tensor, Tensor.clone), FixedTensor, copy)


def _mapped(output: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """Lists, tuples and dictionaries with a function of every value of a kind."""
    if isinstance(output, kind):
        return function(output)
    if isinstance(output, dict):
        return {name: _mapped(value, kind, function) for name, value in output.items()}
    if isinstance(output, list):
        return [_mapped(value, kind, function) for value in output]
    if isinstance(output, tuple):
        values = [_mapped(value, kind, function) for value in output]
        return type(output)(*values) if hasattr(output, "_fields") else tuple(values)
    return output
