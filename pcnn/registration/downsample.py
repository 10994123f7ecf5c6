"""One point a voxel, cells by ``floor(p / size)`` as everywhere here."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def voxel_means(points: Tensor, size: float) -> Tensor:
    """Mean of the points of every occupied voxel."""
    voxel, count = voxels_of(points, size)
    sums = torch.zeros(len(count), 3, dtype=torch.float64, device=points.device)
    sums.index_add_(0, voxel, points.double())
    return (sums / count[:, None]).to(points.dtype)


def voxel_firsts(points: Tensor, size: float) -> Tensor:
    """Rows of the first point of every occupied voxel."""
    voxel, count = voxels_of(points, size)
    rows = torch.arange(len(points), device=points.device)
    first = torch.full_like(count, len(points))
    return first.scatter_reduce_(0, voxel, rows, "amin").sort().values


def voxels_of(points: Tensor, size: float) -> tuple[Tensor, Tensor]:
    """Voxel [P] of every point, numbered in order of their cells, and points [V] of each."""
    if not 0 < size < math.inf:
        raise ValueError(f"the size of a voxel must be positive [m], got {size}")
    if len(points) == 0:
        empty = torch.zeros(0, dtype=torch.int64, device=points.device)
        return empty, empty
    if not bool(torch.isfinite(points).all()):
        raise ValueError("points hold NaN or infinite coordinates")
    places = torch.floor(points.double() / size)
    places -= places.amin(0)
    # looked at before they are integers: what int64 cannot hold would wrap round without a word
    if not bool((places.amax(0) + 1).prod() < 2.0**62):
        raise ValueError(f"the cloud is too large for voxels of {size} m")
    cells = places.long()
    extent = cells.amax(0) + 1
    key = (cells[:, 0] * extent[1] + cells[:, 1]) * extent[2] + cells[:, 2]
    _, voxel, count = torch.unique(key, return_inverse=True, return_counts=True)
    return voxel, count
