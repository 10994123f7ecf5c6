"""From float points to a voxel grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    found = cell_order(cells, batch, clouds, box)
    if found is not None:
        numbers, inverse = found.merged()
        keys = found.keys(numbers)
    else:
        if batch is None:
            batch = torch.zeros(len(cells), dtype=torch.int64, device=cells.device)
        coords = torch.cat([batch.to(torch.int64)[:, None], cells.to(torch.int64)], dim=1)
        keys, inverse = torch.unique(pack(coords), sorted=True, return_inverse=True)
    return VoxelGrid(keys, clouds, bound, stride, downsampling, inverse, box)


def _box(cells: Tensor) -> Box:
    """Lowest and highest of the cells ``[3, P]`` along every axis."""
    if not cells.numel():
        return (0, 0, 0), (0, 0, 0)
    # not `aminmax`, which on the host is a loop over single numbers
    (x, y, z), (u, v, w) = torch.stack([cells.amin(1), cells.amax(1)]).tolist()
    return (int(x), int(y), int(z)), (int(u), int(v), int(w))


@dataclass(frozen=True, eq=False)
class CellOrder:
    """Points by (batch, x, y, z), as they came within a cell."""

    cells: Tensor  # [P] int64, rising, equal for points of one cell
    order: Tensor  # [P] int64, the points
    low: Triple  # lowest cell of the box that they are counted in
    bits: Triple  # of x, y and z in that box

    def merged(self) -> tuple[Tensor, Tensor]:
        """One number a cell ``[N]``, and the row ``[P]`` int64 of every point among them."""
        cells = self.cells.numpy()
        begins = np.ones(len(cells), np.bool_)
        np.not_equal(cells[1:], cells[:-1], out=begins[1:])
        ranks = torch.from_numpy(begins).cumsum(0).sub_(1)
        inverse = torch.empty_like(self.order).scatter_(0, self.order, ranks)
        # numpy finds places and takes them in a third of the time of torch's masked_select
        return torch.from_numpy(cells[np.flatnonzero(begins)]), inverse

    def keys(self, cells: Tensor) -> Tensor:
        """Packed keys of some of the cells, ``[M]`` int64."""
        numbers = cells.numpy()
        keys = numbers >> sum(self.bits) << BATCH_SHIFT
        below = sum(self.bits)
        for bits, shift in zip(self.bits, SHIFTS, strict=True):
            below -= bits
            keys += (numbers >> below & (1 << bits) - 1) << shift
        keys += delta([low + HALF for low in self.low])
        return torch.from_numpy(keys)


def cell_order(
    cells: Tensor, batch: Tensor | None, clouds: int, box: tuple[Triple, Triple]
) -> CellOrder | None:
    """Sort points by their cells, on the host."""
    low, high = box
    bits = tuple((b - a).bit_length() for a, b in zip(low, high, strict=True))
    own, reach = len(cells).bit_length(), max(map(abs, (*low, *high))).bit_length()
    exact = reach + bits[1] + bits[2] + 2 <= _EXACT_BITS
    if cells.device.type != "cpu" or not exact or sum(bits) + clouds.bit_length() + own > _BITS:
        return None
    weights = [1 << bits[1] + bits[2], 1 << bits[2], 1]
    first = sum(a * weight for a, weight in zip(low, weights, strict=True))
    # products and sums are whole numbers that float64 holds, in whatever order they are added
    places = cells.to(torch.float64) @ torch.tensor(weights, dtype=torch.float64)
    numbers = places.to(torch.int64).sub_(first)
    if batch is not None:
        numbers += batch.to(torch.int64) << sum(bits)
    numbers <<= own
    numbers |= torch.arange(len(cells))
    numbers.numpy().sort()
    return CellOrder(numbers >> own, numbers & (1 << own) - 1, low, (bits[0], bits[1], bits[2]))
