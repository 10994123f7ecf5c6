"""From points to voxels by device kernels: their cells, and the features of every voxel."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.kernels import cuda

_CELLS = struct.Struct("4Pq3d")
_REDUCE = struct.Struct("5Pqii0q")
_THREADS = 256

#: Ways to reduce the points of a voxel, in the order of the constants in ``csrc/voxelize.cu``.
REDUCTIONS = ("mean", "sum", "first")


def cells_of_points(points: Tensor, batch: Tensor | None, size: Sequence[float]) -> Tensor:
    """Cells ``floor(p / size)`` of points, ``[P, 4]`` int32 (batch, x, y, z)."""
    wide = points.dtype == torch.float64
    points = points.contiguous() if wide else points.to(torch.float32).contiguous()
    clouds = None if batch is None else batch.to(torch.int32).contiguous()
    n, device = points.shape[0], points.device
    cells = torch.empty(n, 4, dtype=torch.int32, device=device)
    place = (0, points.data_ptr()) if wide else (points.data_ptr(), 0)
    index = 0 if clouds is None else clouds.data_ptr()
    arguments = _CELLS.pack(*place, index, cells.data_ptr(), n, *size)
    module = cuda.module("voxelize.cu", device)
    module.launch("cells_of_points", -(-n // _THREADS), arguments, device)
    return cells


def reduce_by_row(
    features: Tensor,  # [P, C] of 32 bits or fewer
    order: Tensor,  # [P] int32, points by row
    rows: Tensor,  # [P] int64, row of every point
    n_out: int,
    reduction: str,
    count: Tensor | None = None,  # [1] int32 on the device, points that count; None: all of them
) -> Tensor:
    """Mean, sum or first of the features of every row's points,
    summed in the order of the input.
    """
    values = features.to(torch.float32).contiguous()
    (n, channels), device = values.shape, values.device
    out = torch.zeros(n_out, channels, dtype=torch.float32, device=device)
    pointers = (t.data_ptr() for t in (values, order, rows))
    counted = 0 if count is None else count.data_ptr()
    kind = REDUCTIONS.index(reduction)
    arguments = _REDUCE.pack(*pointers, counted, out.data_ptr(), n, channels, kind)
    blocks = -(-n * channels // _THREADS)
    cuda.module("voxelize.cu", device).launch("reduce_points", blocks, arguments, device)
    return out.to(features.dtype)
