"""Features at given cells."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from pcnn.geometry.checks import check_cells, require_tensors
from pcnn.geometry.find_sites import find_cells, require_voxels
from pcnn.tensor import SparseTensor


def lookup(x: SparseTensor, coords: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Features at given cells, in any order and any number of times; gradients flow to them.

    The host waits for no device, except to check coordinates that are floating point.

    Args:
        x: features ``[N, C]`` on a voxel grid.
        coords: ``[P, 3]`` whole numbers (x, y, z) in level-0 voxels, as ``x.geometry.coords`` has
            them; a cell that is no multiple of the tensor stride has no site.
        batch: ``[P]`` integers, cloud of every cell; ``None`` if ``x`` holds one cloud.

    Returns:
        ``[P, C]`` in the dtype of the features, 0 where there is no site, and ``[P]`` bool, whether
        there is one.

    Raises:
        TypeError: coordinates or a batch that are no tensors, or native points.
        ValueError: coordinates or a batch of another shape or dtype, coordinates that are no whole
            numbers, or no batch for several clouds.
    """
    require_tensors(coords=coords, batch=batch)
    grid = require_voxels(x.geometry, "lookup")
    check_cells(coords)
    rows, there = find_cells(grid, coords, batch)
    return features_of_rows(x.features, rows, there), there


def features_of_rows(features: Tensor, rows: Tensor, there: Tensor) -> Tensor:
    """Features ``[P, C]`` of rows, 0 where ``there`` is False."""
    if not len(features):
        features = pad(features, (0, 0, 0, 1))  # a row to point at, still part of the graph
    return torch.where(there[:, None], features.index_select(0, rows), 0)
