"""A network through torch.compile: plans outside, one graph inside."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pcnn.geometry import Geometry
from pcnn.ops import Planner
from pcnn.tensor import SparseTensor


class Compiled(nn.Module):
    """A network whose calls plan their input first and then run compiled.

    Args:
        model: any module that takes a `SparseTensor`; it stays usable as it is.
        backend: of `torch.compile`.
        options: more arguments of `torch.compile`.
    """

    def __init__(self, model: nn.Module, backend: str = "inductor", **options: Any) -> None:
        super().__init__()
        self.model = model
        self._planner: Planner | None = None
        # a function, not a module: parameters would be there twice
        self._compiled = torch.compile(
            self._call, fullgraph=True, dynamic=True, backend=backend, **options
        )

    def forward(self, x: SparseTensor, *inputs: Any) -> Any:
        """The model's output."""
        planner = self._planner_of_model()
        planner(x.geometry)
        if _smallest(planner, x.geometry) < 2:
            return self.model(x, *inputs)
        return self._compiled(x, *inputs)

    def _call(self, x: SparseTensor, *inputs: Any) -> Any:
        return self.model(x, *inputs)

    def _planner_of_model(self) -> Planner:
        own = getattr(self.model, "planner", None)
        if isinstance(own, Planner):
            return own
        if self._planner is None or not self._planner.belongs_to(self.model):
            self._planner = Planner(self.model)
        return self._planner


def compile(model: nn.Module, backend: str = "inductor", **options: Any) -> Compiled:
    """Compile a network whole, for clouds of every size, in inference and in training.

    Voxelisation and planning, also of native points, stay outside the graph. The compiler takes
    sizes of zero and one for constants: a batch on which some level of the network has fewer than
    two sites runs as the model itself does, uncompiled, instead of asking for a graph of its own.

    Args:
        model: any module that takes a `SparseTensor`, and whose layers take levels of that input.
        backend: of `torch.compile`.
        options: more arguments of `torch.compile`, such as ``mode``.

    Returns:
        A module that is called like the model and shares its parameters.

    Raises:
        ValueError: the number of input channels cannot be read off the model (at the first call).
    """
    return Compiled(model, backend, **options)


def _smallest(planner: Planner, geometry: Geometry) -> int:
    """Sites of the smallest level."""
    grids = [geometry]
    for parent, direction, kernel in planner.recipe_on(geometry).levels:
        level = grids[parent].level(kernel, direction == "down")
        assert level is not None
        grids.append(level)
    return min(grid.rows for grid in grids)
