"""Clouds: integer ones that look like scans more than like noise, and loose points."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.geometry import VoxelGrid, grid_of_cells


def surface(n: int, seed: int = 0, centre: int = 0) -> Tensor:
    """[<= n, 3] int64 cells on a bumpy surface, negative coordinates included, duplicates kept."""
    generator = torch.Generator().manual_seed(seed)
    side = max(2, int(n**0.5))
    flat = torch.randint(-side // 2, side // 2 + 1, (n, 2), generator=generator)
    height = (3 * torch.sin(flat[:, 0] / 4) + 2 * torch.cos(flat[:, 1] / 3)).round().long()
    return torch.cat([flat, height[:, None]], dim=1) + centre


def surface_grid(n: int, batch_size: int = 1, seed: int = 0, **kwargs: object) -> VoxelGrid:
    cells = surface(n, seed)
    batch = torch.randint(0, batch_size, (n,), generator=torch.Generator().manual_seed(seed + 1))
    return grid_of_cells(cells, batch, batch_size, **kwargs)  # type: ignore[arg-type]


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
