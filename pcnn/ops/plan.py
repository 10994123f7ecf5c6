"""All geometries and kernel maps of a network, built at the start (Spira's network-wide indexing).

A network asks for its levels and maps while it runs, and they stay cached on the geometry. So what
it will ask for is read off a cloud of two voxels after one dry run, and replayed on any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import torch
from torch import nn

from pcnn.geometry import Kernel, VoxelGrid, grid_of_cells
from pcnn.ops.engine import Engine, resolve
from pcnn.tensor import SparseTensor


@dataclass(frozen=True)
class Recipe:
    """Levels and maps of a network, in terms of each other.

    Args:
        levels: (index of the parent, ``down`` or ``up``, kernel) of every level after level 0.
        maps: (index of the input level, index of the output level, kernel).
    """

    levels: tuple[tuple[int, str, Kernel], ...]
    maps: tuple[tuple[int, int, Kernel], ...]


class Planner:
    """Builds every geometry and kernel map a model will need, for one batch after another.

    Args:
        model: any module that takes a `SparseTensor`; user models need no preparation. Sites that
            a model passes to a layer by hand, other than levels of its own input, are not planned.

    Raises:
        ValueError: the number of input channels cannot be read off the model.
    """

    def __init__(self, model: nn.Module) -> None:
        engines = (getattr(module, "engine", None) for module in model.modules())
        self.engine = next((e for e in engines if isinstance(e, Engine)), resolve(None))
        self.recipe = trace(model)

    def __call__(self, geometry: VoxelGrid) -> VoxelGrid:
        """Derive all levels and build all maps of ``geometry``; returns the geometry itself."""
        levels = [geometry]
        for parent, direction, kernel in self.recipe.levels:
            derive = levels[parent].strided if direction == "down" else levels[parent].generated
            levels.append(derive(kernel))
        for source, target, kernel in self.recipe.maps:
            levels[source].map_to(levels[target], kernel, self.engine.builder.build)
        return geometry


def plan(model: nn.Module, geometry: VoxelGrid) -> VoxelGrid:
    """Build every geometry and kernel map that ``model`` needs on ``geometry``.

    For one batch; in a loop keep a `Planner`, which traces the model once.
    """
    return Planner(model)(geometry)


def trace(model: nn.Module) -> Recipe:
    """Find the levels and maps of a model by a dry run on two voxels, in evaluation mode.

    Buffers, gradients and the training flags of the model stay as they are.
    """
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(1))
    cells = torch.tensor([[0, 0, 0], [1, 0, 0]], device=parameter.device)
    grid = grid_of_cells(cells)
    features = parameter.new_zeros(grid.rows, _input_channels(model))
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            model(SparseTensor(features, grid))
    finally:
        for module, training in flags:
            module.training = training
    return _read(grid)


def _input_channels(model: nn.Module) -> int:
    for module, name in ((m, n) for m in model.modules() for n in ("in_channels", "in_features")):
        channels = getattr(module, name, None)
        if isinstance(channels, int):
            return channels
    raise ValueError(
        f"{type(model).__name__} has no module with in_channels or in_features, so its number of "
        "input channels is unknown; set model.in_channels"
    )


def _read(root: VoxelGrid) -> Recipe:
    """Recipe of the levels and maps that are cached on a grid."""
    grids, levels = [root], []
    position = 0
    while position < len(grids):  # breadth first: a parent comes before its children
        for (direction, key), child in grids[position]._levels.items():
            kernel = key if isinstance(key, Kernel) else Kernel.of(key, key)
            levels.append((position, direction, kernel))
            grids.append(child)
        position += 1
    index = {grid: number for number, grid in enumerate(grids)}
    maps = chain.from_iterable(
        [(index[source], index[target], kernel) for kernel in kernels]
        for source in grids
        for target, kernels in source._maps.items()
        if target in index
    )
    return Recipe(tuple(levels), tuple(maps))
