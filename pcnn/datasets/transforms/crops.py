"""Parts of a cloud: a cylinder about its origin, a ball of so many rows, and pieces of rooms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcnn.config.values import check_fields
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.placement import VoxelSize
from pcnn.datasets.transforms.features import between
from pcnn.geometry import VoxelGrid, quantize
from pcnn.geometry.checks import voxel_sizes
from pcnn.ranges import Lengths, PartialShare, Share


def crop(cloud: Cloud, radius: float | None) -> Cloud:
    """Keep the points within a vertical cylinder about the origin: x^2 + y^2 <= radius^2."""
    if radius is None:
        return cloud
    x, y = cloud.points[:, 0], cloud.points[:, 1]
    return cloud.select(x * x + y * y <= radius * radius)


def sphere_crop(
    cloud: Cloud, generator: np.random.Generator, rows: int, cell: VoxelSize | None
) -> Cloud:
    """Keep what lies nearest to a random point: `rows` cells with all their points."""
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
    return moved.select(inside.index_select(0, inverse))


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


@dataclass(frozen=True)
class Pieces:
    """Cut a piece out of a room, take its upper part away, and leave points out."""

    share: Share = 0.7  # chance of a piece; half of them are balls
    radius: Lengths = (1.5, 4.0)  # smallest and largest radius [m]
    open: Share = 0.3  # chance that everything above a height is missing
    height: Lengths = (0.8, 2.2)
    thin: PartialShare = 0.0  # largest share of points left out

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, cloud: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the piece, of at least one point; a cloud without points as it is."""
        # always the same draws, so that a chance changes nothing but what it is about
        cut, ball, middle, lower, size, opened, height, thin = generator.random(8).tolist()
        seed = int(generator.integers(1 << 63))
        if cloud.n_points == 0:
            return cloud
        keep = torch.ones(cloud.n_points, dtype=torch.bool)
        if cut < self.share:
            centre = cloud.points[int(middle * cloud.n_points)].clone()
            bottom = cloud.points[:, 2].min()
            centre[2] = bottom + lower * (centre[2] - bottom)
            axes = 3 if ball < 0.5 else 2
            square = (cloud.points - centre)[:, :axes].square().sum(1)
            inside = square <= between(self.radius, size) ** 2
            keep = inside if bool(inside.any()) else keep
        if opened < self.open:
            z = cloud.points[:, 2]
            keep &= z <= z[keep].min() + between(self.height, height)
        if thin > 0.0 and self.thin > 0.0:
            luck = np.random.default_rng(seed).random(cloud.n_points)
            left = keep & (torch.from_numpy(luck) >= self.thin * thin**2)
            keep = left if bool(left.any()) else keep
        return on_floor(cloud.select(keep))


def on_floor(cloud: Cloud) -> Cloud:
    """Move the middle of the bounding box to x = y = 0 and its lowest point to z = 0."""
    if not cloud.n_points:
        return cloud
    low, high = cloud.points.aminmax(dim=0)
    origin = (low + high) / 2
    origin[2] = low[2]
    return replace(cloud, points=cloud.points - origin)
