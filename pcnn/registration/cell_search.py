"""The points within a radius, or the nearest of them, by sorting points into cells.

Points are sorted by cell with cells of sides 2R, 2R and R / 2, that follow each other along z. The
box of side 2R around a query touches two cells along x and y each, so its points are four runs of
the sorted ones, and no point is met twice (PointCNN++, section 3.3: sorting and searching).
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.maps.radius_pairs import (
    AXIS_CELLS,
    BOX_MARGIN,
    CELL_MARGIN,
    Block,
    Runs,
    blocks,
    gaps_of,
    pairs_in_runs,
    sorted_codes,
)

TABLE = 8  # cells a point up to which their starts are listed, not searched
SIDES = (2.0, 2.0, 0.5)  # of a cell, in radii


def nearest_in_cells(query: Tensor, points: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The nearest of all points within a radius; see `SortedCells.nearest`."""
    return SortedCells(points, radius).nearest(query)


class SortedCells:
    """Points sorted by cell, to be searched several times."""

    def __init__(self, points: Tensor, radius: float) -> None:
        self.radius = radius
        self._number = len(points)
        self._order = torch.zeros(0, dtype=torch.int64, device=points.device)
        self._by_cell = points.T.contiguous()
        if not len(points):
            return
        wide = points.double()
        self._low, high = wide.aminmax(dim=0)
        side = wide.new_tensor(SIDES) * (radius * CELL_MARGIN)
        # larger cells cover a box as well: an axis never needs more bits than it has
        self._side = torch.maximum(side, (high - self._low) / (AXIS_CELLS - 2))
        own = self._cells(wide)
        self._last = own.amax(0)
        self._shape = rows, columns, layers = (self._last + 1).tolist()
        keys = (own[:, 0] * columns + own[:, 1]) * layers + own[:, 2]
        self._table: Tensor | None = None  # [cells + 1] first position of every cell
        number = rows * columns * layers
        if number <= TABLE * len(points):
            # [N] int64 rows of the points, by cell: in one number with the cell, so as to be sorted
            # quickly, rows of a cell stay in order
            rising = torch.arange(len(keys), device=keys.device)
            self._order = sorted_codes(keys * len(keys) + rising) % len(keys)
            ends = keys.bincount(minlength=number).cumsum(0)
            self._table = torch.nn.functional.pad(ends, (1, 0))
        else:
            self._keys, self._order = keys.sort(stable=True)
        # [3, N]: one column after another is gathered faster than rows
        self._by_cell = points.index_select(0, self._order).T.contiguous()

    def nearest(self, query: Tensor, radius: float | None = None) -> tuple[Tensor, Tensor]:
        """The nearest point of every query within a radius, the radius included."""
        radius = self.radius if radius is None else radius
        distance = query.new_full((len(query),), torch.inf)
        index = torch.full((len(query),), -1, dtype=torch.int64, device=query.device)
        for block in blocks(self._runs(query, radius)):
            some = block.queries
            distance[some], index[some] = self._nearest(query[some], block, radius)
        return distance, index

    def within(self, query: Tensor, radius: float | None = None) -> tuple[Tensor, Tensor]:
        """All pairs within a radius, as `pcnn.maps.radius_pairs.radius_pairs` lists them."""
        radius = self.radius if radius is None else radius
        return pairs_in_runs(self._by_cell, self._runs(query, radius), query, radius)

    def _nearest(self, query: Tensor, block: Block, radius: float) -> tuple[Tensor, Tensor]:
        gaps = gaps_of(self._by_cell, query.T.contiguous(), block)
        x, y, z = (gap.square_() for gap in gaps)
        square = x.add_(y).add_(z)
        best = query.new_full((len(query),), torch.inf).scatter_reduce_(0, block.at, square, "amin")
        best = torch.where(best <= radius**2, best, torch.inf)
        hit = (square == best.index_select(0, block.at)).nonzero().squeeze(1)
        first = torch.full_like(best, self._number, dtype=torch.int64)
        first.scatter_reduce_(0, block.at[hit], self._order[block.place[hit]], "amin")
        return best.sqrt(), torch.where(first < self._number, first, -1)

    def _cells(self, places: Tensor) -> Tensor:
        # one monotone function of the coordinate for both sides; far queries stay outside
        cells = ((places - self._low) / self._side).floor_().clamp_(-2, AXIS_CELLS + 1)
        return cells.long()

    def _runs(self, query: Tensor, radius: float) -> Runs:
        if not len(query) or not self._number:
            none = torch.zeros(len(query), 4, dtype=torch.int64, device=query.device)
            return Runs(self._order, none, none)
        rows, columns, layers = self._shape
        reach, margin = query.double(), radius * BOX_MARGIN
        first, final = self._cells(torch.stack([reach - margin, reach + margin]))  # [Q, 3]
        final = torch.minimum(final, self._last)
        step = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], device=query.device)
        at = first[:, None, :2] + step  # [Q, 4, 2] columns of cells
        bottom, top = first[:, 2:].clamp(min=0), final[:, 2:]
        inside = ((at >= 0) & (at <= final[:, None, :2])).all(2) & (bottom <= top)
        column = (at[..., 0] * columns + at[..., 1]) * layers
        wanted = torch.stack([column + bottom, column + top + 1])
        if self._table is not None:
            starts, ends = self._table[wanted.clamp_(0, rows * columns * layers)]
        else:
            starts, ends = torch.searchsorted(self._keys, wanted)
        return Runs(self._order, starts, torch.where(inside, ends - starts, 0))
