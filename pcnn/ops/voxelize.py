"""From points with features to a sparse tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.geometry import KernelMap, VoxelGrid, quantize
from pcnn.geometry.quantize import check_finite, check_points, voxel_sizes
from pcnn.maps.native import has_kernels
from pcnn.ops.plan import Planner, plan_nothing
from pcnn.ops.reduce import reduce_mean, reduce_sum
from pcnn.tensor import SparseTensor

REDUCTIONS = ("mean", "first", "sum")

#: A cell beyond any packing: what a point that is not finite falls into.
_NOWHERE = 1 << 30


def voxelize(
    points: Tensor,
    features: Tensor,
    batch: Tensor | None = None,
    *,
    voxel_size: float | Sequence[float],
    reduce: str = "mean",
    batch_size: int | None = None,
    sites: str = "floor",
    planner: Planner | None = None,
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
        planner: of the network that the tensor will enter: its levels and kernel maps are built in
            the same go.

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
    grid = _quantized(points, batch, voxel_size, batch_size, sites, planner)
    return SparseTensor(reduce_points(features, grid, reduce), grid)


def _quantized(
    points: Tensor,
    batch: Tensor | None,
    voxel_size: float | Sequence[float],
    batch_size: int | None,
    sites: str,
    planner: Planner | None,
) -> VoxelGrid:
    """Voxel grid of points, planned for a network if a planner is given.

    Args:
        points: ``[P, 3]`` floating point coordinates [m].
        batch: ``[P]`` integers; ``None`` means one cloud.
        voxel_size: edge of a voxel [m].
        batch_size: number of clouds; ``None`` means the largest batch index + 1.
        sites: output sites of strided convolutions.
        planner: of the network that will run on the grid.

    Raises:
        ValueError: as `pcnn.geometry.quantize`.
    """
    if not has_kernels(points.device):
        grid = quantize(points, batch, voxel_size=voxel_size, batch_size=batch_size, sites=sites)
        return grid if planner is None else planner(grid)
    check_points(points, batch)
    size = torch.tensor(voxel_sizes(voxel_size), dtype=torch.float64).to(
        points.device, non_blocking=True
    )
    cells = torch.empty(points.shape[0], 4, dtype=torch.int32, device=points.device)
    cells[:, 0] = 0 if batch is None else batch
    # float64: at 1e5 m a float32 quotient is off by whole voxels
    floor = torch.floor(points.to(torch.float64) / size)
    cells[:, 1:] = floor.nan_to_num(nan=_NOWHERE).clamp(-_NOWHERE, _NOWHERE)
    try:
        if planner is None:
            return plan_nothing(cells, batch_size, sites)
        return planner.voxelize(cells, batch_size, sites=sites)
    except ValueError as error:
        refused = error
    check_finite(points)  # such a point falls nowhere: name it rather than its cell
    raise refused


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
