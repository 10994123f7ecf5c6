"""From points with features to a sparse tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.geometry import KernelMap, VoxelGrid, quantize
from pcnn.ops.reduce import reduce_mean, reduce_sum
from pcnn.tensor import SparseTensor

REDUCTIONS = ("mean", "first", "sum")


def voxelize(
    points: Tensor,
    features: Tensor,
    batch: Tensor | None = None,
    *,
    voxel_size: float | Sequence[float],
    reduce: str = "mean",
    batch_size: int | None = None,
    sites: str = "floor",
) -> SparseTensor:
    """Quantise points to voxels ``floor(p / voxel_size)`` and reduce the features of each voxel.

    Args:
        points: ``[P, 3]`` floating point coordinates [m].
        features: ``[P, C]`` floating point; gradients flow to it.
        batch: ``[P]`` integers, cloud of every point; ``None`` means one cloud.
        voxel_size: edge of a voxel [m], one number or one per axis.
        reduce: points of one voxel are averaged (``mean``), added (``sum``), or the one that comes
            first in the input represents them (``first``).
        batch_size: number of clouds; ``None`` means the largest batch index + 1.
        sites: output sites of strided convolutions, ``floor`` or ``reached``.

    Returns:
        A tensor whose rows are sorted by (batch, x, y, z); ``geometry.inverse`` ``[P]`` holds the
        row of every point.

    Raises:
        ValueError: as `pcnn.geometry.quantize`, or features that do not match the points.
    """
    if features.ndim != 2 or features.shape[0] != points.shape[0]:
        raise ValueError(
            f"features must be [{points.shape[0]}, C] to match the points, got "
            f"{tuple(features.shape)}"
        )
    grid = quantize(points, batch, voxel_size=voxel_size, batch_size=batch_size, sites=sites)
    return SparseTensor(reduce_points(features, grid, reduce), grid)


def reduce_points(features: Tensor, grid: VoxelGrid, reduce: str = "mean") -> Tensor:
    """Reduce point features ``[P, C]`` to the voxels of a grid made from those points ``[N, C]``.

    Raises:
        ValueError: unknown reduction, or a grid that was not made from points.
    """
    if reduce not in REDUCTIONS:
        raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    if grid.inverse is None:
        raise ValueError("this grid has no inverse map: it was not made from points")
    if features.shape[0] != grid.inverse.shape[0]:
        raise ValueError(
            f"the grid was made from {grid.inverse.shape[0]} points, got features of "
            f"{features.shape[0]}"
        )
    if reduce == "first":
        points = torch.arange(features.shape[0], device=features.device)
        first = torch.full((grid.rows,), features.shape[0], device=features.device)
        first.scatter_reduce_(0, grid.inverse, points, "amin")
        return features.index_select(0, first)
    membership = point_map(grid)
    return (reduce_mean if reduce == "mean" else reduce_sum)(features, membership)


def point_map(grid: VoxelGrid) -> KernelMap:
    """Map with one slot from the points a grid was made of (input) to its voxels (output)."""
    if grid.inverse is None:
        raise ValueError("this grid has no inverse map: it was not made from points")
    points = torch.arange(grid.inverse.shape[0], device=grid.device, dtype=torch.int32)
    offsets = torch.tensor([0, points.shape[0]])
    out_index = grid.inverse.to(torch.int32)
    return KernelMap.from_pairs(points, out_index, offsets, len(points), grid.rows, False, True)
