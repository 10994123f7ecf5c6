"""Neighbours: points within a radius, how these spread, the nearest points and descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pcnn.maps.base import has_kernels
from pcnn.maps.neighbour_kernels import CountedNeighbours, Search, Window
from pcnn.maps.point_cells import MOST_COMPARED, PointCells, blocks, check_pairs

#: Entries of a block of distances: on a GPU, and in a CPU's cache.
BLOCK, CACHED = 1 << 26, 1 << 19
DENSE = 1 << 33  # distances that a GPU computes all of, sooner than it sorts points by cells


class SortedCells:
    """Points of one cloud or of several, to be searched within a radius several times."""

    def __init__(
        self, points: Tensor, radius: float, clouds: Tensor | None = None, number: int = 1
    ) -> None:
        self.points, self.radius, self.clouds, self.number = points, radius, clouds, number

    @cached_property
    def _cells(self) -> PointCells:
        return PointCells(self.points, self.clouds, self.radius)

    def pairs(self, query: Tensor, clouds: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All pairs (query, point) of one cloud within the radius, ascending."""
        points, reach = self.points, self.radius
        if not (has_kernels(points.device) and len(points) and len(query)):
            return self._cells.pairs(query, clouds, reach)
        window = Window(reach, (1.0, 1.0, 1.0), (1, 1, 1))  # one slot takes all
        own, of = (
            batch if batch is not None else torch.zeros_like(side[:, 0], dtype=torch.int64)
            for batch, side in ((self.clouds, points), (clouds, query))
        )
        search = Search(points, own, query, of, self.number, window, most=MOST_COMPARED)
        counted = CountedNeighbours([search])
        number, crowd = counted.numbers[0][-2:].tolist()
        check_pairs(query, reach, number, crowd)
        ((found, at, *_),) = counted.fill([number])
        return at.long(), found.long()

    def nearest(
        self, query: Tensor, radius: float, clouds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The nearest point of every query within a radius up to the own one, included."""
        distance = query.new_full((len(query),), torch.inf)
        index = torch.full((len(query),), -1, dtype=torch.int64, device=query.device)
        for block in blocks(self._cells.runs(query, clouds, radius)):
            some = query[block.queries]
            x, y, z = (gap.square_() for gap in self._cells.gaps(some.T.contiguous(), block))
            square, found = x.add_(y).add_(z), self._cells.order[block.place]
            best = least_of(square, block.at, found, len(some), radius)
            distance[block.queries], index[block.queries] = best
        return distance, index


def least_of(
    square: Tensor, at: Tensor, found: Tensor, number: int, radius: float
) -> tuple[Tensor, Tensor]:
    """Distances and rows of the nearest of points found at queries, by squares of distances."""
    best = square.new_full((number,), torch.inf).scatter_reduce_(0, at, square, "amin")
    best = torch.where(best <= radius**2, best, torch.inf)
    far = torch.iinfo(torch.int64).max
    there = torch.where(square == best.index_select(0, at), found, far)
    first = torch.full_like(best, far, dtype=torch.int64).scatter_reduce_(0, at, there, "amin")
    return best.sqrt(), torch.where(first < far, first, -1)


def principal_axes(
    points: Tensor, places: Tensor, cells: SortedCells, clouds: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """How far, and along which axes, the points around places spread; places are of `clouds`."""
    at, found = cells.pairs(places.float(), clouds)
    # [K, 3], about the place to keep digits
    gap = (points.index_select(0, found) - places.index_select(0, at)).double()
    x, y, z = gap.split(1, dim=1)
    # the upper half of the products of coordinates, and the coordinates
    terms = torch.cat([x * gap, y * gap[:, 1:], z * z, gap, torch.ones_like(x)], 1)  # [K, 10]
    sums = gap.new_zeros(len(places), 10).index_add_(0, at, terms)
    means = sums / sums[:, 9:].clamp(min=1)
    mean = means[:, 6:9]
    square = means[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].unflatten(1, (3, 3))
    return torch.linalg.eigh(square - mean[:, :, None] * mean[:, None, :])


def axes_around(points: Tensor, places: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """`principal_axes` of points [N, 3] around places [P, 3]."""
    if points.is_cuda and len(points) * len(places) < DENSE:
        variances, axes = Nearest(points.double()[None]).axes(places.double()[None], radius)
        return variances[0], axes[0]
    return principal_axes(points, places, SortedCells(points.float(), radius))


def nearest_within(query: Tensor, points: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The nearest point of every query within a radius, exact."""
    if query.is_cuda and 0 < len(query) * len(points) < DENSE:
        index = Nearest(points.double()[None])(query.double()[None])[0]
        distance = (query - points[index]).norm(dim=1).float()
        near = distance <= radius
        return torch.where(near, distance, torch.inf), torch.where(near, index, -1)
    query, points = query.float(), points.float()
    distance = query.new_full((len(query),), torch.inf)
    index = torch.full((len(query),), -1, dtype=torch.int64, device=query.device)
    open_rows = torch.arange(len(query), device=query.device)
    # dense places are not searched at the full radius
    for step in (8, 4, 2, 1):
        if len(open_rows) == 0:
            break
        gap, found = SortedCells(points, radius / step).nearest(query[open_rows], radius / step)
        distance[open_rows], index[open_rows] = gap, found
        open_rows = open_rows[found < 0]
    return distance, index


class Nearest:
    """Points or descriptors [B, N, C] of clouds, searched by products: ``|d|² - 2 q·d``."""

    def __init__(self, others: Tensor, there: Tensor | None = None) -> None:
        # centred: a common offset costs digits
        if there is None:
            self.middle = others.mean(1, keepdim=True)
            self.centred = others - self.middle
            square = self.centred.square().sum(2, keepdim=True)
        else:  # [B, N, 1]
            self.middle = others.sum(1, keepdim=True) / there.sum(1, keepdim=True)
            self.centred = torch.where(there, others - self.middle, 0)
            square = self.centred.square().sum(2, keepdim=True).masked_fill(~there, torch.inf)
        self.square = square.mT
        self.twice = (-2 * self.centred).mT  # [B, C, N]

    def _parts(self, queries: Tensor) -> Sequence[Tensor]:
        most = BLOCK if queries.is_cuda else CACHED
        return (queries - self.middle).split(max(most // self.square.numel(), 1), 1)

    def __call__(self, queries: Tensor) -> Tensor:
        """Rows [B, Q] of the nearest of queries [B, Q, C]."""
        found = [self._least(part) for part in self._parts(queries)]
        return torch.cat(found, 1) if len(found) > 1 else found[0]

    def rolled(self, number: int) -> Nearest:
        """The same with clouds further on by a number."""
        other = copy(self)
        for name in ("middle", "square", "twice"):
            setattr(other, name, getattr(self, name).roll(number, 0))
        return other

    def axes(self, places: Tensor, radius: float, every: int = 1) -> tuple[Tensor, Tensor]:
        """`principal_axes` [B, Q, 3] and [B, Q, 3, 3] of float64, of some of the points."""
        points = self.centred[:, ::every]
        products = (points[..., None] * points[..., None, :]).flatten(2)
        terms = torch.cat([products, points, torch.ones_like(points[..., :1])], 2)
        square, twice = self.square[..., ::every], self.twice[..., ::every]
        sums = []
        for part in self._parts(places):
            reach = radius**2 - part.square().sum(2, keepdim=True)
            sums.append((torch.baddbmm(square, part, twice) <= reach).to(terms.dtype) @ terms)
        all_sums = torch.cat(sums, 1)
        means = all_sums / all_sums[..., 12:].clamp(min=1)
        mean = means[..., 9:12]
        spread = means[..., :9].unflatten(2, (3, 3)) - mean[..., None] * mean[..., None, :]
        return torch.linalg.eigh(spread)

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
    if len(queries) == 1:
        return Nearest(others[0][None])(queries[0][None])
    asked, held = (pad_sequence(side, batch_first=True) for side in (queries, others))
    sizes = torch.tensor(list(map(len, others))).to(held.device, non_blocking=True)
    there = torch.arange(held.shape[1], device=held.device) < sizes[:, None]  # [B, N]
    return Nearest(held, there[..., None])(asked)
