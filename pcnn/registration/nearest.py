"""Neighbours: points within a radius, how these spread, the nearest points and descriptors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pcnn.maps.point_cells import Block, PointCells, blocks

#: Entries of a block of distances: on a GPU, and in a CPU's cache.
BLOCK, CACHED = 1 << 26, 1 << 19


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
    # on a CPU dense places are not searched at the full radius
    for step in (1,) if query.is_cuda else (8, 4, 2, 1):
        if len(open_rows) == 0:
            break
        gap, found = SortedCells(points, radius / step).nearest(query[open_rows], radius / step)
        distance[open_rows], index[open_rows] = gap, found
        open_rows = open_rows[found < 0]
    return distance, index


class Nearest:
    """Points or descriptors [B, N, C] of clouds, searched by products: ``|d|² - 2 q·d``."""

    def __init__(self, others: Tensor, there: Tensor | None = None) -> None:
        if there is None:
            there = torch.ones_like(others[..., :1], dtype=torch.bool)  # [B, N, 1]
        # centred: a common offset costs digits
        self.middle = others.sum(1, keepdim=True) / there.sum(1, keepdim=True)
        centred = torch.where(there, others - self.middle, 0)
        self.square = centred.square().sum(2, keepdim=True).masked_fill(~there, torch.inf).mT
        self.twice = (-2 * centred).mT  # [B, C, N]

    def __call__(self, queries: Tensor) -> Tensor:
        """Rows [B, Q] of the nearest of queries [B, Q, C]."""
        most = BLOCK if queries.is_cuda else CACHED
        parts = (queries - self.middle).split(max(most // self.square.numel(), 1), 1)
        return torch.cat([self._least(part) for part in parts], 1)

    def _least(self, part: Tensor) -> Tensor:
        if part.is_cuda:
            return torch.baddbmm(self.square, part, self.twice).argmin(2)
        # numpy looks at several at once, torch at one
        return torch.from_numpy((part @ self.twice).add_(self.square).numpy().argmin(2))


@torch.no_grad()
def nearest_rows(queries: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """Rows [B, Q] of the finite others [N_b, C] that are nearest to queries [Q_b, C]."""
    queries, others = ([one.float() for one in side] for side in (queries, others))
    if not queries[0].is_cuda:  # whose cache holds a part of one pair
        pairs = zip(queries, others, strict=True)
        found = [Nearest(other[None])(query[None])[0] for query, other in pairs]
        return pad_sequence(found, batch_first=True)
    asked, held = (pad_sequence(side, batch_first=True) for side in (queries, others))
    sizes = torch.tensor(list(map(len, others))).to(held.device)[:, None, None]
    there = torch.arange(held.shape[1], device=held.device)[:, None] < sizes  # [B, N, 1]
    return Nearest(held, there)(asked)
