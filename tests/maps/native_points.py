"""Points as the radius search reads them, made without the geometry under test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KeyLayout
from pcnn.geometry.packing import DEFAULT_LAYOUT


@dataclass(frozen=True, eq=False)
class Cloud:
    points: Tensor
    keys: Tensor
    grid_size: tuple[float, float, float]
    sites: str = "nearest"
    one_per_cell: bool = False
    inverse: Tensor | None = None
    layout: KeyLayout = DEFAULT_LAYOUT

    @property
    def rows(self) -> int:
        return len(self.points)

    @property
    def batch_size(self) -> int:
        return int(self.batch_index.max()) + 1 if self.rows else 1

    @property
    def batch_index(self) -> Tensor:
        return self.keys >> self.layout.batch_shift

    @property
    def cells(self) -> Tensor:
        return self.layout.unpack(self.keys).long()

    def points_about(self, other: Any) -> Tensor:
        return self.points

    def is_below(self, coarse: Any, kernel: Kernel) -> bool:
        return False


def cloud(
    points: Tensor,
    batch: Tensor | None = None,
    grid: tuple[float, float, float] = (0.05, 0.05, 0.05),
    sites: str = "nearest",
) -> Cloud:
    """Sorted points; at ``cell_origin`` one point in the corner of every cell."""
    batch = torch.zeros(len(points), dtype=torch.int64) if batch is None else batch
    size = torch.tensor(grid, dtype=torch.float64)
    cells = torch.cat([batch[:, None], torch.floor(points.double() / size).long()], dim=1)
    keys = DEFAULT_LAYOUT.pack(cells)
    if sites == "cell_origin":
        keys = keys.unique()
        corners = DEFAULT_LAYOUT.unpack(keys)[:, 1:] * size
        return Cloud(corners.float(), keys, grid, sites, one_per_cell=True)
    keys, order = keys.sort(stable=True)
    return Cloud(points[order].float(), keys, grid, sites, len(keys.unique()) == len(keys))


def coarser(fine: Cloud, stride: tuple[int, int, int]) -> Cloud:
    """The first point of every coarse cell, or the cell's corner."""
    cells = fine.cells
    cells[:, 1:] = torch.div(cells[:, 1:], torch.tensor(stride), rounding_mode="floor")
    keys, inverse = fine.layout.pack(cells).unique(return_inverse=True)
    x, y, z = (edge * step for edge, step in zip(fine.grid_size, stride, strict=True))
    if fine.sites == "cell_origin":
        corners = fine.layout.unpack(keys)[:, 1:] * torch.tensor((x, y, z), dtype=torch.float64)
        points = corners.float()
    else:
        first = torch.full_like(keys, fine.rows)
        first.scatter_reduce_(0, inverse, torch.arange(fine.rows), "amin")
        points = fine.points[first]
    return Cloud(points, keys, (x, y, z), fine.sites, True, inverse)
