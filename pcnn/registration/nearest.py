"""Neighbours: points within a radius, how these spread, the nearest points and descriptors."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.maps.point_cells import Block, PointCells, blocks

#: Entries of a block of distances between descriptors: on a GPU, and in a CPU's cache.
BLOCK, CACHED = 1 << 24, 1 << 19


class SortedCells(PointCells):
    """Points sorted by cell, of one cloud or of several, to be searched several times."""

    def __init__(self, points: Tensor, radius: float, clouds: Tensor | None = None) -> None:
        super().__init__(points, clouds, radius)

    def nearest(
        self, query: Tensor, radius: float, clouds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The nearest point of every query within a radius, the radius included."""
        distance = query.new_full((len(query),), torch.inf)
        index = torch.full((len(query),), -1, dtype=torch.int64, device=query.device)
        for block in blocks(self.runs(query, clouds, radius)):
            some = block.queries
            distance[some], index[some] = self._nearest(query[some], block, radius)
        return distance, index

    def _nearest(self, query: Tensor, block: Block, radius: float) -> tuple[Tensor, Tensor]:
        x, y, z = (gap.square_() for gap in self.gaps(query.T.contiguous(), block))
        square = x.add_(y).add_(z)
        best = query.new_full((len(query),), torch.inf).scatter_reduce_(0, block.at, square, "amin")
        best = torch.where(best <= radius**2, best, torch.inf)
        hit = (square == best.index_select(0, block.at)).nonzero().squeeze(1)
        first = torch.full_like(best, self.number, dtype=torch.int64)
        first.scatter_reduce_(0, block.at[hit], self.order[block.place[hit]], "amin")
        return best.sqrt(), torch.where(first < self.number, first, -1)


def principal_axes(
    points: Tensor, places: Tensor, cells: SortedCells, radius: float, clouds: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """How far, and along which axes, the points around places spread; places are of `clouds`."""
    at, found = cells.pairs(places.float(), clouds, radius)
    # [K, 3], about the place to keep digits
    gap = (points.index_select(0, found) - places.index_select(0, at)).double()
    x, y, z = gap.split(1, dim=1)
    # the upper half of the products of coordinates, and the coordinates
    terms = torch.cat([x * gap, y * gap[:, 1:], z * z, gap], 1)  # [K, 9]
    count = torch.bincount(at, minlength=len(places)).clamp(min=1)[:, None]  # [N, 1]
    means = gap.new_zeros(len(places), 9).index_add_(0, at, terms) / count
    mean = means[:, 6:]
    square = means[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].unflatten(1, (3, 3))
    covariance = square - mean[:, :, None] * mean[:, None, :]
    variances, axes = torch.linalg.eigh(covariance)
    return variances, axes


def nearest_within(query: Tensor, points: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The nearest point of every query within a radius, exact."""
    query, points = query.float(), points.float()
    distance = query.new_full((len(query),), torch.inf)
    index = torch.full((len(query),), -1, dtype=torch.int64, device=query.device)
    open_rows = torch.arange(len(query), device=query.device)
    for step in (8, 4, 2, 1):  # dense places are not searched at the full radius
        if len(open_rows) == 0:
            break
        gap, found = SortedCells(points, radius / step).nearest(query[open_rows], radius / step)
        distance[open_rows], index[open_rows] = gap, found
        open_rows = open_rows[found < 0]
    return distance, index


def nearest_descriptors(query: Tensor, descriptors: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest of finite descriptors [N, C] of every query [Q, C], in Euclidean distance."""
    query, descriptors = query.float(), descriptors.float()
    index = _least_products(query, descriptors)
    return (query - descriptors[index]).norm(dim=1), index


@torch.no_grad()
def _least_products(query: Tensor, others: Tensor) -> Tensor:
    """Rows [Q] of the others [N, C] with the least ``|d|² - 2 q·d``, in the dtype of both."""
    # centred: a common offset costs digits
    middle = others.mean(0)
    centred = others - middle
    square, twice = centred.square().sum(1), (-2 * centred).T
    rows = max((BLOCK if query.is_cuda else CACHED) // len(others), 1)
    found = [query.new_zeros(0, dtype=torch.int64)]
    for part in query.split(rows) if len(query) else ():
        products = ((part - middle) @ twice).add_(square)
        if products.is_cuda:
            found.append(products.argmin(1))
        else:  # numpy looks at several at once, torch at one
            found.append(torch.from_numpy(products.numpy().argmin(1)))
    return torch.cat(found)
