"""The points within a radius, or the nearest of them, by sorting points into cells."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.maps.point_cells import Block, PointCells, blocks


def nearest_in_cells(query: Tensor, points: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The nearest of all points within a radius; see `SortedCells.nearest`."""
    return SortedCells(points, radius).nearest(query, radius)


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
