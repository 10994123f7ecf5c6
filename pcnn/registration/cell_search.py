"""The nearest point within a radius, by sorting points into cells.

Points are sorted by cell with cells of sides 2R, 2R and R / 2, that follow each other along z. The
box of side 2R around a query touches two cells along x and y each, so its points are four runs of
the sorted ones, and no point is met twice (PointCNN++, section 3.3: sorting and searching).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CANDIDATES = 1 << 21  # compared at once, to bound memory
AXIS_CELLS = 1 << 18  # at most along an axis: three of them fit a key
TABLE = 8  # cells a point up to which their starts are listed, not searched
SIDES = (2.0, 2.0, 0.5)  # of a cell, in radii
# boxes and cells are this much larger: no rounding moves a point within reach out of its box
BOX_MARGIN, CELL_MARGIN = 1 + 2.0**-10, 1 + 2.0**-9


class _Runs(NamedTuple):
    """Points near every query, as runs of the sorted order."""

    order: Tensor  # [N] int64 rows of the points, by cell
    starts: Tensor  # [Q, 4] int64 first position of every run
    counts: Tensor  # [Q, 4] int64 points of every run


def nearest_in_cells(query: Tensor, points: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The nearest of all points within a radius, the radius included.

    Args:
        query: [Q, 3] float32 [m], finite.
        points: [N, 3] float32 [m], finite.
        radius: [m], positive.

    Returns:
        ``distance [Q]`` float32, infinite where no point is near enough, and ``index [Q]`` int64,
        -1 there; the lower index on a tie.
    """
    distance = query.new_full((len(query),), torch.inf)
    index = torch.full((len(query),), -1, dtype=torch.int64, device=query.device)
    if not len(query) or not len(points):
        return distance, index
    runs = _runs(query, points, radius)
    by_cell = points.index_select(0, runs.order)
    ends = runs.counts.sum(1).cumsum(0)  # [Q] candidates up to a query
    start, done, total = 0, 0, int(ends[-1])
    while done < total:
        stop = len(query)
        if total - done > CANDIDATES:
            found = int(torch.searchsorted(ends, done + CANDIDATES, right=True))
            stop = max(start + 1, found)
        part = slice(start, stop)
        some = _Runs(runs.order, runs.starts[part], runs.counts[part])
        distance[part], index[part] = _nearest(query[part], by_cell, some, radius)
        start, done = stop, int(ends[stop - 1])
    return distance, index


def _nearest(query: Tensor, by_cell: Tensor, runs: _Runs, radius: float) -> tuple[Tensor, Tensor]:
    number, counts = len(query), runs.counts.flatten()
    ends = counts.cumsum(0)
    total = int(ends[-1])
    # [C] position of every candidate, and its query
    place = (runs.starts.flatten() - (ends - counts)).repeat_interleave(counts, output_size=total)
    place += torch.arange(total, device=place.device)
    rows = torch.arange(number, device=place.device)
    at = rows.repeat_interleave(runs.counts.sum(1), output_size=total)
    gap = by_cell.index_select(0, place).sub_(query.index_select(0, at))
    square = gap.square_().sum(1)
    best = query.new_full((number,), torch.inf).scatter_reduce_(0, at, square, "amin")
    best = torch.where(best <= radius**2, best, torch.inf)
    hit = (square == best.index_select(0, at)).nonzero().squeeze(1)
    none = len(by_cell)
    first = torch.full((number,), none, dtype=torch.int64, device=query.device)
    first.scatter_reduce_(0, at[hit], runs.order[place[hit]], "amin")
    return best.sqrt(), torch.where(first < none, first, -1)


def _runs(query: Tensor, points: Tensor, radius: float) -> _Runs:
    wide = points.double()
    low, high = wide.aminmax(dim=0)
    side = low.new_tensor(SIDES) * (radius * CELL_MARGIN)
    # larger cells cover a box as well: an axis never needs more bits than it has
    side = torch.maximum(side, (high - low) / (AXIS_CELLS - 2))

    def cells(places: Tensor) -> Tensor:
        # one monotone function of the coordinate for both sides; far queries stay outside
        return ((places - low) / side).floor_().clamp_(-2, AXIS_CELLS + 1).long()

    own = cells(wide)
    last = own.amax(0)
    rows, columns, layers = (last + 1).tolist()
    keys = (own[:, 0] * columns + own[:, 1]) * layers + own[:, 2]
    reach, margin = query.double(), radius * BOX_MARGIN
    first, final = cells(torch.stack([reach - margin, reach + margin]))  # [Q, 3]
    final = torch.minimum(final, last)
    step = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], device=query.device)
    at = first[:, None, :2] + step  # [Q, 4, 2] columns of cells
    bottom, top = first[:, 2:].clamp(min=0), final[:, 2:]
    inside = ((at >= 0) & (at <= final[:, None, :2])).all(2) & (bottom <= top)
    column = (at[..., 0] * columns + at[..., 1]) * layers
    wanted = torch.stack([column + bottom, column + top + 1])
    number = rows * columns * layers
    if number <= TABLE * len(points):
        order = keys.argsort(stable=True)
        table = torch.nn.functional.pad(keys.bincount(minlength=number).cumsum(0), (1, 0))
        starts, ends = table[wanted.clamp_(0, number)]
    else:
        keys, order = keys.sort(stable=True)
        starts, ends = torch.searchsorted(keys, wanted)
    return _Runs(order, starts, torch.where(inside, ends - starts, 0))
