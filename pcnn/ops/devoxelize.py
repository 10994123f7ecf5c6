"""Features of voxels of any level at cells, and at points that they were not made from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from pcnn.dataflows.torch_sums import accumulator
from pcnn.geometry import KernelMap
from pcnn.geometry.checks import check_cells, check_points, require_tensors, voxel_sizes
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.sites import find_cells, require_voxels
from pcnn.ops.reduce import reduce_sum
from pcnn.tensor import SparseTensor

#: Ways from voxels to points.
INTERPOLATIONS = ("nearest", "trilinear")


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
    point, corner = used.nonzero(as_tuple=True)
    found = rows.reshape(used.shape)[point, corner]
    pairs = found.to(torch.int32), point.to(torch.int32), torch.tensor([0, len(found)])
    kernel_map = KernelMap.from_pairs(*pairs, grid.rows, len(points), False, False)
    return reduce_sum(x.features, kernel_map, share[point, corner].to(accumulator(x.dtype)))


def _cells(points: Tensor, sizes: tuple[float, float, float], stride: Triple) -> Tensor:
    """Cells of a level that hold points, ``[P, 3]`` float64 in level-0 voxels."""
    # first the voxel, then its coarse cell, as levels are made
    cells = (points.to(torch.float64) / on_device_of(points, sizes, torch.float64)).floor()
    step = on_device_of(points, stride, torch.float64)
    return (cells / step).floor() * step


def _surrounding(
    points: Tensor, sizes: tuple[float, float, float], stride: Triple
) -> tuple[Tensor, Tensor]:
    """Cells ``[P, 8, 3]`` whose centres surround points, and weights ``[P, 8]``, both float64."""
    step = on_device_of(points, stride, torch.float64)
    place = (
        points.to(torch.float64) / (step * on_device_of(points, sizes, torch.float64)) - 0.5
    )  # in cells
    lowest = place.detach().floor()
    share = (place - lowest)[:, None, :]  # [P, 1, 3]
    corner = torch.arange(8, device=points.device)[:, None]
    corners = torch.cat([corner >> 2, corner >> 1, corner], dim=1) & 1  # [8, 3]
    weight = torch.where(corners > 0, share, 1 - share).prod(2)
    return (lowest[:, None, :] + corners) * step, weight


def on_device_of(like: Tensor, values: Sequence[float], dtype: torch.dtype | None = None) -> Tensor:
    """Numbers on the device of a tensor, not copied there, which would wait."""
    return torch.stack([like.new_full((), value, dtype=dtype) for value in values])


def features_of_rows(features: Tensor, rows: Tensor, there: Tensor) -> Tensor:
    """Features ``[P, C]`` of rows, 0 where ``there`` is False."""
    if not len(features):
        features = pad(features, (0, 0, 0, 1))  # a row to point at, still part of the graph
    return torch.where(there[:, None], features.index_select(0, rows), 0)
