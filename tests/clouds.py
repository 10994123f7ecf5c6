"""Clouds: integer ones that look like scans more than like noise, and loose points."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.geometry import KernelMap, VoxelGrid, grid_of_cells
from pcnn.ops.conformance import wavy_cells as surface
from pcnn.ops.conformance import wavy_grid as surface_grid

__all__ = ["batched", "cloud", "dense_grid", "surface", "surface_grid", "triplets_of"]


def dense_grid(size: int, batch_size: int = 1) -> VoxelGrid:
    """Every cell of a cube from the origin."""
    axes = [torch.arange(size)] * 3
    cells = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, 3)
    batch = torch.arange(batch_size).repeat_interleave(len(cells))
    return grid_of_cells(cells.repeat(batch_size, 1), batch, batch_size)


def cloud(n: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    """[n, 3] float64 points around zero."""
    return scale * torch.randn(n, 3, generator=torch.Generator().manual_seed(seed)).double()


def batched(n: int, clouds: int = 3) -> tuple[Tensor, Tensor]:
    """Points and their clouds, in no order."""
    batch = torch.randint(0, clouds, (n,), generator=torch.Generator().manual_seed(n))
    return cloud(n, seed=n), batch


def triplets_of(kernel_map: KernelMap) -> list[tuple[int, int, int]]:
    """(i, j, k) of output, input and slot, in the map's order."""
    columns = (kernel_map.out_index, kernel_map.in_index, kernel_map.slot_index)
    return list(zip(*(column.tolist() for column in columns), strict=True))
