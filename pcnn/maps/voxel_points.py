"""From points to voxels by device kernels: their cells, and the features of every voxel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pcnn.kernels import cuda

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
    module = cuda.module("voxelize.cu", device)
    module.launch(
        "cells_of_points",
        -(-n // _THREADS),
        points=None if wide else points,
        wide=points if wide else None,
        batch=clouds,
        cells=cells,
        n=n,
        size=size,
    )
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
    given: dict[str, Any] = {
        "features": values,
        "order": order,
        "rows": rows,
        "count": count,
        "out": out,
        "n": n,
    }
    kind, blocks = REDUCTIONS.index(reduction), -(-n * channels // _THREADS)
    module = cuda.module("voxelize.cu", device)
    module.launch("reduce_points", blocks, **given, channels=channels, kind=kind)
    return out.to(features.dtype)
