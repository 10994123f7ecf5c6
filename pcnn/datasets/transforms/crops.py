"""Parts of a cloud: a cylinder about its origin, and a ball of so many rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.placement import VoxelSize
from pcnn.geometry import VoxelGrid, quantize
from pcnn.geometry.checks import voxel_sizes


def crop(cloud: Cloud, radius: float | None) -> Cloud:
    """Keep the points within a vertical cylinder about the origin: x^2 + y^2 <= radius^2.

    The cylinder is the same after any rotation about the vertical axis and any mirroring.
    """
    if radius is None:
        return cloud
    if not radius > 0.0:
        raise ValueError(f"crop must be a positive radius [m] or none, got {radius}")
    x, y = cloud.points[:, 0], cloud.points[:, 1]
    return cloud.select((x * x + y * y <= radius * radius).nonzero()[:, 0])


def sphere_crop(
    cloud: Cloud, generator: np.random.Generator, rows: int, cell: VoxelSize | None
) -> Cloud:
    """Keep what lies nearest to a random point: `rows` cells with all their points.

    A cell's distance is that of its centre. The random point moves to x = y = 0. Clouds of at most
    so many cells come back as they are; one that has no more after it was moved keeps all points.
    """
    if rows < 1:
        raise ValueError(f"point_max must be at least 1 row or none, got {rows}")
    share = generator.random()
    if cloud.n_points <= rows or (cell is not None and _grid(cloud, cell).rows <= rows):
        return cloud
    middle = cloud.points[min(int(share * cloud.n_points), cloud.n_points - 1)].clone()
    height = middle[2].double()
    middle[2] = 0.0
    # moved before the cells are counted: moved afterwards, the points would fall into others
    moved = replace(cloud, points=cloud.points - middle)
    places, inverse = _rows(moved, cell)
    x, y, z = places
    distance = x * x + y * y + (z - height).square()
    nearest = torch.from_numpy(smallest(distance.numpy(), min(rows, len(distance))))
    if inverse is None:
        return moved.select(nearest)
    inside = torch.zeros(len(distance), dtype=torch.bool)
    inside[nearest] = True
    return moved.select(inside.index_select(0, inverse).nonzero()[:, 0])


def _rows(cloud: Cloud, cell: VoxelSize | None) -> tuple[Tensor, Tensor | None]:
    """Centres [3, N] float64 of the rows, and the row of every point; None where each is one."""
    if cell is None:
        return cloud.points.T.double(), None
    grid = _grid(cloud, cell)
    edges = torch.tensor(voxel_sizes(cell), dtype=torch.float64)
    cells = grid.coords[:, 1:].T.to(torch.float64, memory_format=torch.contiguous_format)
    return cells.add_(0.5).mul_(edges[:, None]), grid.inverse


def _grid(cloud: Cloud, cell: VoxelSize) -> VoxelGrid:
    try:
        return quantize(cloud.points, voxel_size=cell, batch_size=1)
    except ValueError as error:
        raise ValueError(f"{cloud.path}: {error}") from error


def smallest(values: NDArray[Any], number: int) -> NDArray[np.intp]:
    """Ascending places of so many of the smallest values; among equal ones the first."""
    if number == 0:
        return np.empty(0, np.intp)
    last = np.partition(values, number - 1)[number - 1]
    kept = values <= last
    if np.count_nonzero(kept) != number:
        below, equal = values < last, np.flatnonzero(values == last)
        below[equal[: number - np.count_nonzero(below)]] = True
        kept = below
    return np.flatnonzero(kept)
