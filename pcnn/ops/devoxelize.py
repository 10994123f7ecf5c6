"""Features of voxels of any level at cells, and at points that they were not made from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from pcnn.dataflows.torch_sums import accumulator
from pcnn.geometry.checks import check_cells, check_points, require_tensors, voxel_sizes
from pcnn.geometry.voxel_grid import find_cells, require_voxels
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

    ``nearest`` takes the voxel whose cell holds the point, 0 where there is none; ``trilinear``
    weighs the eight cells whose centres surround the point; the weights of those that are occupied
    are normalised to a sum of 1, and a point without any gets 0. Points that are NaN or infinite
    get 0. Nothing waits for the device.

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
    grid = require_voxels(x.geometry, "devoxelize")
    step = on_device_of(points, grid.tensor_stride, torch.float64)
    edges = on_device_of(points, voxel_sizes(voxel_size), torch.float64)
    if interpolation == "nearest":
        # first the voxel, then its coarse cell, as levels are made
        cells = (points.detach().to(torch.float64) / edges).floor()
        cells = (cells / step).floor() * step
        rows, there = find_cells(grid, cells, batch)
        return features_of_rows(x.features, rows, there)
    place = points.to(torch.float64) / (step * edges) - 0.5
    lowest = place.detach().floor()
    corners = corners_of_cells(points.device)
    cells = (lowest[:, None, :] + corners) * step  # [P, 8, 3], whose centres surround the points
    clouds = None if batch is None else batch.repeat_interleave(8)
    rows, there = find_cells(grid, cells.reshape(-1, 3), clouds)
    weight = weights_of_corners((place - lowest)[:, None, :], corners)
    return interpolated(x.features, rows.view(-1, 8), weight, there.view(-1, 8))


def corners_of_cells(device: torch.device) -> Tensor:
    """``[8, 3]`` of 0 and 1."""
    corner = torch.arange(8, device=device, dtype=torch.int32)[:, None]
    return torch.cat([corner >> 2, corner >> 1, corner], dim=1) & 1


def weights_of_corners(share: Tensor, corners: Tensor) -> Tensor:
    """``[P, 8]`` of places ``[P, 1, 3]`` in the unit cell."""
    return torch.where(corners > 0, share, 1 - share).prod(2)


def interpolated(features: Tensor, rows: Tensor, weight: Tensor, there: Tensor) -> Tensor:
    """Weighted means ``[P, C]`` of eight rows ``[P, 8]`` each, of those that are there."""
    # a point on a centre has weights of 0, and its sum would be 0 if its own voxel is absent
    used = there & (weight.detach() > 0)  # [P, 8]
    weight = weight.masked_fill(~used, 0)
    total = weight.sum(1, keepdim=True)
    wide = accumulator(features.dtype)
    shares = (weight / torch.where(total > 0, total, 1)).to(wide)
    rows = torch.where(used, rows, len(features))  # behind them stands a row of zeros
    features = pad(features, (0, 0, 0, 1))
    out = features.new_zeros(len(rows), features.shape[1], dtype=wide)
    for row, share in zip(rows.unbind(1), shares.unbind(1), strict=True):
        # a slot at a time: all eight together are eight times the memory of the result
        out = torch.addcmul(out, features.index_select(0, row).to(wide), share[:, None])
    return out.to(features.dtype)


def on_device_of(like: Tensor, values: Sequence[float], dtype: torch.dtype | None = None) -> Tensor:
    """Numbers on the device of a tensor, not copied there, which would wait."""
    return torch.stack([like.new_full((), value, dtype=dtype) for value in values])


def features_of_rows(features: Tensor, rows: Tensor, there: Tensor) -> Tensor:
    """Features ``[P, C]`` of rows, 0 where ``there`` is False."""
    if not len(features):
        features = pad(features, (0, 0, 0, 1))  # a row to point at, still part of the graph
    return torch.where(there[:, None], features.index_select(0, rows), 0)
