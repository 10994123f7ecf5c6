"""From float points to a voxel grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pcnn.geometry.checks import (
    check_batch,
    check_cells,
    check_finite,
    check_on_stride,
    check_points,
    clouds_of,
    require_tensors,
    voxel_sizes,
)
from pcnn.geometry.kernel_slots import Triple, triple
from pcnn.geometry.packing import BATCH_SHIFT, HALF, SHIFTS, check_bound, delta, pack
from pcnn.geometry.voxel_grid import Box, VoxelGrid

#: Bits of the whole numbers that float64 holds exactly.
_EXACT_BITS = 53
#: Bits of a number that is sorted, its sign left out.
_BITS = 63


def quantize(
    points: Tensor,  # [P, 3] floating point coordinates [m]
    batch: Tensor | None = None,  # [P] integers, cloud of every point; None means one cloud
    *,
    voxel_size: float | Sequence[float],
    batch_size: int | None = None,
    downsampling: str = "floor",
) -> VoxelGrid:
    """Voxel grid of the cells ``floor(p / voxel_size)`` that hold at least one point."""
    check_points(points, batch)
    sizes = voxel_sizes(voxel_size)
    size = torch.tensor(sizes, dtype=torch.float64, device=points.device)
    # float64: at 1e5 m a float32 quotient is off by whole voxels; x, y and z each contiguous, on
    # which this and the box take half the time
    columns = points.T.to(torch.float64, copy=True, memory_format=torch.contiguous_format)
    columns.div_(size[:, None]).floor_()  # [3, P]
    try:
        box = _box(columns)
    except (OverflowError, ValueError):  # no whole number: name the points
        check_finite(points)
        raise
    return _merged(columns.T, box, batch, batch_size, downsampling)


def grid_of_cells(
    cells: Tensor,  # [P, 3] whole numbers (x, y, z), any real dtype
    batch: Tensor | None = None,  # [P] integers; None means one cloud
    batch_size: int | None = None,
    downsampling: str = "floor",
    tensor_stride: int | Sequence[int] = 1,
) -> VoxelGrid:
    """Voxel grid of integer cells, duplicates merged."""
    require_tensors(cells=cells, batch=batch)
    check_cells(cells)
    if batch is not None:
        check_batch(batch, len(cells))
    stride = triple(tensor_stride, "tensor_stride", 1)
    check_on_stride(cells, stride)
    box = _box(cells.T.contiguous())
    return _merged(cells, box, batch, batch_size, downsampling, stride)


def _merged(
    cells: Tensor,
    box: Box,
    batch: Tensor | None,
    batch_size: int | None,
    downsampling: str,
    stride: Triple = (1, 1, 1),
) -> VoxelGrid:
    first, last = 0, 0 if batch_size is None or len(cells) else -1
    if batch is not None and len(batch):
        first, last = torch.stack(batch.aminmax()).tolist()
    clouds = clouds_of(first, last, batch_size)
    low, high = box
    bound = max(0, *high, *(-value for value in low))
    check_bound(bound, 0, "voxel grid")
    merged = merged_on_host(cells, batch, clouds, box)
    if merged is None:
        if batch is None:
            batch = torch.zeros(len(cells), dtype=torch.int64, device=cells.device)
        coords = torch.cat([batch.to(torch.int64)[:, None], cells.to(torch.int64)], dim=1)
        merged = torch.unique(pack(coords), sorted=True, return_inverse=True)
    keys, inverse = merged
    return VoxelGrid(keys, clouds, bound, stride, downsampling, inverse, box)


def _box(cells: Tensor) -> Box:
    """Lowest and highest of the cells ``[3, P]`` along every axis."""
    if not cells.numel():
        return (0, 0, 0), (0, 0, 0)
    # not `aminmax`, which on the host is a loop over single numbers
    (x, y, z), (u, v, w) = torch.stack([cells.amin(1), cells.amax(1)]).tolist()
    return (int(x), int(y), int(z)), (int(u), int(v), int(w))


def merged_on_host(
    cells: Tensor, batch: Tensor | None, clouds: int, box: Box
) -> tuple[Tensor, Tensor] | None:
    """Sorted keys of the cells, and the row of every point, by one sort of numpy.

    ``None``: the cells are on a device, or so far apart that a cell and a point together take more
    than a number.
    """
    low, high = box
    bits = [(b - a).bit_length() for a, b in zip(low, high, strict=True)]
    own, reach = len(cells).bit_length(), max(map(abs, (*low, *high))).bit_length()
    exact = reach + bits[1] + bits[2] + 2 <= _EXACT_BITS
    if cells.device.type != "cpu" or not exact or sum(bits) + clouds.bit_length() + own > _BITS:
        return None
    weights = [1 << bits[1] + bits[2], 1 << bits[2], 1]
    first = sum(a * weight for a, weight in zip(low, weights, strict=True))
    # products and sums are whole numbers that float64 holds, in whatever order they are added
    places = cells.to(torch.float64) @ torch.tensor(weights, dtype=torch.float64)
    codes = places.to(torch.int64).sub_(first)
    if batch is not None:
        codes += batch.to(torch.int64) << sum(bits)
    codes <<= own
    codes |= torch.arange(len(cells))
    codes.numpy().sort()
    numbers, order = (codes >> own).numpy(), codes & (1 << own) - 1
    begins = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=begins[1:])
    inverse = torch.empty_like(order).scatter_(0, order, torch.from_numpy(begins).cumsum(0).sub_(1))
    # numpy finds places and takes them in a third of the time of torch's masked_select
    numbers = numbers[np.flatnonzero(begins)]
    below = sum(bits)
    keys = numbers >> below << BATCH_SHIFT
    for width, shift in zip(bits, SHIFTS, strict=True):
        below -= width
        keys += (numbers >> below & (1 << width) - 1) << shift
    keys += delta([start + HALF for start in low])
    return torch.from_numpy(keys), inverse
