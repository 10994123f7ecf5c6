"""Between voxels of any level and points that they need not have been made from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.geometry import Geometry, KernelMap
from pcnn.geometry.checks import check_points, voxel_sizes
from pcnn.geometry.find_sites import find_cells, require_voxels
from pcnn.geometry.kernel_slots import Triple
from pcnn.ops.lookup import features_of_rows
from pcnn.ops.reduce import BY_NAME, reduce_sum
from pcnn.tensor import SparseTensor

#: Ways from voxels to points.
INTERPOLATIONS = ("nearest", "trilinear")


def devoxelize(
    x: SparseTensor,
    points: Tensor,
    batch: Tensor | None = None,
    *,
    voxel_size: float | Sequence[float],
    interpolation: str = "trilinear",
) -> Tensor:
    """Features at points, from voxels of any level.

    ``nearest`` takes the voxel whose cell holds the point, 0 where there is none; nothing waits for
    the device. ``trilinear`` weighs the eight cells whose centres surround the point; the weights
    of those that are occupied are normalised to a sum of 1, and a point without any gets 0. It
    waits for the device once, for the number of weights. Points that are NaN or infinite get 0.

    Args:
        x: features ``[N, C]`` on a voxel grid of any tensor stride; gradients flow to them.
        points: ``[P, 3]`` floating point coordinates [m]; gradients flow to them if trilinear.
        batch: ``[P]`` integers, cloud of every point; ``None`` if ``x`` holds one cloud.
        voxel_size: edge of a voxel of tensor stride 1 [m], one number or one per axis.
        interpolation: ``nearest`` or ``trilinear``.

    Returns:
        ``[P, C]`` in the dtype of the features.

    Raises:
        TypeError: points or a batch that are no tensors, or a tensor on native points.
        ValueError: an unknown interpolation, a voxel size that is not positive, points or a batch
            of another shape or dtype, or no batch for several clouds.
    """
    if interpolation not in INTERPOLATIONS:
        known = ", ".join(INTERPOLATIONS)
        raise ValueError(f"interpolation must be one of {known}, got {interpolation!r}")
    check_points(points, batch)
    sizes = voxel_sizes(voxel_size)
    grid = require_voxels(x.geometry, "devoxelize")
    if interpolation == "nearest":
        cells = _cells(points.detach(), sizes, grid.tensor_stride)
        rows, there = find_cells(grid, cells, batch)
        return features_of_rows(x.features, rows, there)
    cells, weight = _surrounding(points, sizes, grid.tensor_stride)
    clouds = None if batch is None else batch.repeat_interleave(8)
    rows, there = find_cells(grid, cells.reshape(-1, 3), clouds)
    # a point on a centre has weights of 0, and its sum would be 0 if its own voxel is absent
    used = there.reshape(weight.shape) & (weight.detach() > 0)  # [P, 8]
    weight = weight.masked_fill(~used, 0)
    total = weight.sum(1, keepdim=True)
    share = weight / torch.where(total > 0, total, 1)
    wide = torch.float64 if x.features.dtype == torch.float64 else torch.float32
    point, corner = used.nonzero(as_tuple=True)
    found = rows.reshape(used.shape)[point, corner]
    kernel_map = _one_slot(found, point, grid.rows, len(points))
    return reduce_sum(x.features, kernel_map, share[point, corner].to(wide))


def voxelize_onto(
    geometry: Geometry,
    points: Tensor,  # [P, 3] floating point coordinates [m]; those in no voxel do not count
    features: Tensor,  # [P, C] floating point; gradients flow to them
    batch: Tensor | None = None,  # [P] integers, cloud of every point
    *,
    voxel_size: float | Sequence[float],
    reduce: str = "mean",
) -> SparseTensor:
    """Reduce the features of points to the voxels of a given grid, of any level.

    For the points that the grid was made from, `pcnn.ops.reduce_points` looks nothing up. The host
    waits for the device once, for the number of points that lie in a voxel.
    """
    if reduce not in BY_NAME:
        raise ValueError(f"reduce must be one of {', '.join(BY_NAME)}, got {reduce!r}")
    check_points(points, batch)
    grid = require_voxels(geometry, "voxelize_onto")
    if features.ndim != 2 or len(features) != len(points):
        raise ValueError(
            f"features must be [{len(points)}, C] to match the points, got {tuple(features.shape)}"
        )
    cells = _cells(points.detach(), voxel_sizes(voxel_size), grid.tensor_stride)
    rows, there = find_cells(grid, cells, batch)
    inside = there.nonzero()[:, 0]
    kernel_map = _one_slot(inside, rows[inside], len(points), grid.rows)
    return SparseTensor(BY_NAME[reduce](features, kernel_map), grid)


def _cells(points: Tensor, sizes: tuple[float, float, float], stride: Triple) -> Tensor:
    """Cells of a level that hold points, ``[P, 3]`` float64 in level-0 voxels."""
    # first the voxel, then its coarse cell, as levels are made
    cells = (points.to(torch.float64) / _axes(sizes, points)).floor()
    step = _axes(stride, points)
    return (cells / step).floor() * step


def _surrounding(
    points: Tensor, sizes: tuple[float, float, float], stride: Triple
) -> tuple[Tensor, Tensor]:
    """Cells ``[P, 8, 3]`` whose centres surround points, and weights ``[P, 8]``, both float64."""
    step = _axes(stride, points)
    place = points.to(torch.float64) / (step * _axes(sizes, points)) - 0.5  # in cells
    lowest = place.detach().floor()
    share = (place - lowest)[:, None, :]  # [P, 1, 3]
    corner = torch.arange(8, device=points.device)[:, None]
    corners = torch.cat([corner >> 2, corner >> 1, corner], dim=1) & 1  # [8, 3]
    weight = torch.where(corners > 0, share, 1 - share).prod(2)
    return (lowest[:, None, :] + corners) * step, weight


def _axes(values: Sequence[float], points: Tensor) -> Tensor:
    """Three numbers as float64 on the device of points, not copied there, which would wait."""
    return torch.stack([points.new_full((), value, dtype=torch.float64) for value in values])


def _one_slot(in_index: Tensor, out_index: Tensor, n_in: int, n_out: int) -> KernelMap:
    """Map with one slot that several inputs and outputs may share."""
    pairs = in_index.to(torch.int32), out_index.to(torch.int32), torch.tensor([0, len(in_index)])
    return KernelMap.from_pairs(*pairs, n_in, n_out, False, False)
