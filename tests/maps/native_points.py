"""Native points that look like scans: several in a cell, negative coordinates, three clouds."""

import torch

from pcnn.geometry import Kernel, PointSet, point_set_of
from tests.clouds import surface

Sizes = tuple[float, float, float]
CUBES: Sizes = (0.05, 0.05, 0.05)


def scan(n: int, clouds: int = 3, grid: Sizes = CUBES) -> PointSet:
    """Points on a bumpy surface, about one in a cell."""
    generator = torch.Generator().manual_seed(n)
    cells = surface(n, n) + torch.rand(n, 3, generator=generator)
    batch = torch.randint(0, clouds, (n,), generator=generator)
    points = (cells * torch.tensor(grid)).float()
    return point_set_of(points, batch, clouds, voxel_size=grid)


def single(points: PointSet) -> PointSet:
    """The first point of every cell."""
    _, counts = points.keys.unique(return_counts=True)
    first = counts.cumsum(0) - counts
    return point_set_of(
        points.points[first],
        points.batch_index[first],
        points.batch_size,
        voxel_size=points.voxel_size,
    )


def coarser(fine: PointSet, stride: tuple[int, int, int]) -> PointSet:
    return fine.strided(Kernel.of(stride, stride, padding=0))
