"""Rows of given cells in a voxel grid, and the sites of several grids together."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.geometry.base import Geometry
from pcnn.geometry.checks import check_batch
from pcnn.geometry.packing import HALF, pack
from pcnn.geometry.voxel_grid import VoxelGrid


def find_keys(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of keys among sorted ones, by binary search."""
    if not len(keys):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    rows = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
    return rows, keys[rows] == wanted


def find_cells(grid: VoxelGrid, cells: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rows of the sites at given cells."""
    if batch is None and grid.batch_size != 1:
        raise ValueError(f"the sites are of {grid.batch_size} clouds: give the batch, [P] integers")
    if batch is None:
        clouds = torch.zeros(len(cells), dtype=torch.int64, device=cells.device)
    else:
        check_batch(batch, len(cells))
        clouds = batch.to(torch.int64)
    if not cells.is_floating_point():
        cells = cells.to(torch.int64)
    inside = (clouds >= 0) & (clouds < grid.batch_size)  # [P]
    inside &= ((cells >= -HALF) & (cells < HALF)).all(1)
    coords = torch.cat([clouds[:, None], cells], dim=1)
    coords = torch.where(inside[:, None], coords, 0).to(torch.int64)  # [P, 4]
    rows, there = find_keys(grid.keys, pack(coords))
    return rows, there & inside


def require_voxels(geometry: Geometry, operation: str) -> VoxelGrid:
    """The geometry, if it is a voxel grid."""
    if not isinstance(geometry, VoxelGrid):
        raise TypeError(
            f"{operation} takes sites of a VoxelGrid, got a {type(geometry).__name__}; "
            "pcnn.voxelize makes voxels of points"
        )
    return geometry
