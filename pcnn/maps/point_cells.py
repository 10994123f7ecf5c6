"""All pairs of points within reach of each other, by sorting points into cells, in torch.

Points are sorted by (cloud, cell) with cells of sides 2R, 2R and R / 2. The box of side 2R around a
query touches two cells along x and y each, and cells follow each other along z: its points are four
runs of the sorted ones, and no point is met twice (PointCNN++, section 3.3: sorting and searching).
Runs are counted, then walked for one block of queries after another.

The reach test of a pair is one float32 expression, the same in every implementation, with
every operation rounded on its own (no fused multiply-add):

    ball   (dx * dx + dy * dy) + dz * dz <= float32(R * R)       dx = query.x - point.x, ...
    box    |dx| <= float32(R_x)  and  |dy| <= float32(R_y)  and  |dz| <= float32(R_z)

with ``R * R`` in float64 before its rounding. Both include the boundary, both give the same answer
with the two points exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pcnn.errors import DenseCloudError

#: Ball radius, or half widths of a box along x, y and z [m].
Reach = float | tuple[float, float, float]

#: Cell edges along x, y and z [m].
Edges = tuple[float, float, float]

#: Candidate pairs compared at once, to bound memory.
CHUNK = 1 << 21

#: Pairs that are listed at most, of some 32 bytes each, and compared.
MOST_PAIRS = 225_000_000
MOST_COMPARED = 32 * MOST_PAIRS

#: Cells an axis is cut into at most: 54 bits for three axes leave room for 511 clouds.
AXIS_CELLS = 1 << 18

#: Cells a point up to which their starts are listed, not searched.
TABLE = 8

SIDES = (2.0, 2.0, 0.5)  # of a cell, in half widths of what is searched

# cells and boxes are this much larger than R asks for: no rounding, neither of the float32
# comparison nor of the float64 cell, moves a pair within reach out of the cells searched
BOX_MARGIN = 1 + 2.0**-10
CELL_MARGIN = 1 + 2.0**-9

# R * R must be a normal float32 number
SMALLEST_REACH, LARGEST_REACH = 2.0**-60, 2.0**60


class Runs(NamedTuple):
    """Points near every query, as runs of the sorted order."""

    starts: Tensor  # [Q, 4] int64, first position of every run
    counts: Tensor  # [Q, 4] int64, points of every run


class Block(NamedTuple):
    """Candidates of some queries."""

    queries: slice  # which, consecutive ones
    at: Tensor  # [C] int64, query of every candidate, counted from the first of the block
    place: Tensor  # [C] int64, its position in the sorted order


class PointCells:
    """Points sorted by cell, to be searched several times with any reach up to their own."""

    def __init__(self, points: Tensor, batch: Tensor | None, reach: Reach) -> None:
        self.number = len(points)
        self.order = torch.zeros(0, dtype=torch.int64, device=points.device)
        self.by_cell = points.T.contiguous()
        if not len(points):
            return
        wide = points.double()
        self._low, high = wide.aminmax(dim=0)
        side = wide.new_tensor(_widths(reach)) * wide.new_tensor(SIDES) * CELL_MARGIN
        # larger cells cover a box as well: an axis never needs more bits than it has
        self._side = torch.maximum(side, (high - self._low) / (AXIS_CELLS - 2))
        own = self._cells(wide)
        self._last = own.amax(0)
        self._shape = rows, columns, layers = (self._last + 1).tolist()
        keys = (own[:, 0] * columns + own[:, 1]) * layers + own[:, 2]
        clouds = 1
        if batch is not None:
            clouds = int(batch.max()) + 1
            keys += batch * (rows * columns * layers)
        self._table: Tensor | None = None  # [cells + 1] first position of every cell
        number = clouds * rows * columns * layers
        if number <= TABLE * len(points):
            # [N] int64 rows of the points, by cell: in one number with the cell, so as to be sorted
            # quickly, rows of a cell stay in order
            rising = torch.arange(len(keys), device=keys.device)
            self.order = sorted_codes(keys * len(keys) + rising) % len(keys)
            ends = keys.bincount(minlength=number).cumsum(0)
            self._table = torch.nn.functional.pad(ends, (1, 0))
        else:
            self._keys, self.order = keys.sort(stable=True)
        # [3, N]: one column after another is gathered several times as fast as rows
        self.by_cell = points.index_select(0, self.order).T.contiguous()

    def runs(self, query: Tensor, batch: Tensor | None, reach: Reach) -> Runs:
        """Candidates of queries ``[Q, 3]``: no fewer than are within reach."""
        if not len(query) or not self.number:
            none = torch.zeros(len(query), 4, dtype=torch.int64, device=query.device)
            return Runs(none, none)
        rows, columns, layers = self._shape
        centres = query.double()
        margin = centres.new_tensor(_widths(reach)) * BOX_MARGIN
        first, final = self._cells(torch.stack([centres - margin, centres + margin]))  # [Q, 3]
        final = torch.minimum(final, self._last)
        step = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], device=query.device)
        at = first[:, None, :2] + step  # [Q, 4, 2] columns of cells
        bottom, top = first[:, 2:].clamp(min=0), final[:, 2:]
        inside = ((at >= 0) & (at <= final[:, None, :2])).all(2) & (bottom <= top)
        column = (at[..., 0] * columns + at[..., 1]) * layers
        if batch is not None:
            column += (batch * (rows * columns * layers))[:, None]
        wanted = torch.stack([column + bottom, column + top + 1])
        if self._table is not None:
            starts, ends = self._table[wanted.clamp_(0, len(self._table) - 1)]
        else:
            starts, ends = torch.searchsorted(self._keys, wanted)
        return Runs(starts, torch.where(inside, ends - starts, 0))

    def near(self, query: Tensor, runs: Runs, reach: Reach) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs (query, point) within reach, ascending, of one block of queries after another."""
        columns = query.T.contiguous()
        for block in blocks(runs):
            hit = within_reach(self.gaps(columns[:, block.queries], block), reach)
            place = hit.nonzero().squeeze(1)
            rows = block.at[place] + block.queries.start
            # query * N + point: the runs of a query are not in the order of the points
            codes = sorted_codes(rows * self.number + self.order[block.place[place]])
            queries = torch.div(codes, self.number, rounding_mode="floor")
            yield queries, codes - queries * self.number

    def pairs(self, query: Tensor, batch: Tensor | None, reach: Reach) -> tuple[Tensor, Tensor]:
        """All pairs (query, point) of one cloud within reach, ascending."""
        runs, total = self.runs(query, batch, reach), 0
        check_pairs(query, reach, 0, int(runs.counts.sum()))
        none = torch.zeros(0, dtype=torch.int64, device=query.device)
        found = [(none, none)]
        for part in self.near(query, runs, reach):
            found.append(part)
            total += len(part[0])
            check_pairs(query, reach, total, 0)
        queries, points = zip(*found, strict=True)
        return torch.cat(queries), torch.cat(points)

    def gaps(self, query: Tensor, block: Block) -> list[Tensor]:
        """Differences ``[C]``, query - point along x, y and z, of the candidates of a block."""
        return [
            to.index_select(0, block.at).sub_(of.index_select(0, block.place))
            for to, of in zip(query, self.by_cell, strict=True)
        ]

    def _cells(self, places: Tensor) -> Tensor:
        # one monotone function of the coordinate for both sides; far queries stay outside
        cells = ((places - self._low) / self._side).floor_().clamp_(-2, AXIS_CELLS + 1)
        return cells.long()


def check_pairs(query: Tensor, reach: Reach, pairs: int, compared: int) -> None:
    """Refuse so many pairs that they take all memory, or all day."""
    if pairs <= MOST_PAIRS and compared <= MOST_COMPARED:
        return
    number = f"{pairs:,} pairs or more" if pairs > MOST_PAIRS else f"{compared:,} pairs to compare"
    raise DenseCloudError(
        f"radius search: {len(query):,} points and a reach of {reach} m make {number}, where "
        f"{MOST_PAIRS:,} pairs may be listed. Thin the points, or use a smaller radius"
    )


def checked_reach(radius: float) -> float:
    """Refuse a radius whose square float32 does not hold."""
    if not SMALLEST_REACH <= radius <= LARGEST_REACH:
        raise ValueError(f"reach must be a positive radius [m], got {radius!r}")
    return float(radius)


def within_reach(difference: Sequence[Tensor], reach: Reach) -> Tensor:
    """True if two points are within reach: the one comparison of the module's docstring."""
    dx, dy, dz = difference
    if isinstance(reach, tuple):
        x, y, z = torch.tensor(reach, dtype=torch.float32).tolist()  # rounded to float32
        inside: Tensor = (dx.abs() <= x) & (dy.abs() <= y) & (dz.abs() <= z)
        return inside
    limit = torch.tensor(reach * reach, dtype=torch.float32).item()
    near: Tensor = (dx * dx).add_(dy * dy).add_(dz * dz) <= limit
    return near


def blocks(runs: Runs) -> Iterator[Block]:
    """Consecutive queries with `CHUNK` candidates together, or one query with more."""
    each = runs.counts.sum(1)
    ends = each.cumsum(0)  # [Q] candidates up to a query
    start, done, total = 0, 0, int(ends[-1]) if len(ends) else 0
    while done < total:
        stop = len(ends)
        if total - done > CHUNK:
            stop = max(start + 1, int(torch.searchsorted(ends, done + CHUNK, right=True)))
        some = slice(start, stop)
        number, counts = int(ends[stop - 1]) - done, runs.counts[some].flatten()
        first = runs.starts[some].flatten() - (counts.cumsum(0) - counts)
        place = first.repeat_interleave(counts, output_size=number)
        place += torch.arange(number, device=place.device)
        rows = torch.arange(stop - start, device=place.device)
        yield Block(some, rows.repeat_interleave(each[some], output_size=number), place)
        start, done = stop, done + number


def sorted_codes(codes: Tensor) -> Tensor:
    """Codes in rising order; on a CPU by numpy, several times as fast as torch."""
    if codes.device.type == "cpu":
        return torch.from_numpy(np.sort(codes.numpy()))
    return codes.sort().values


def _widths(reach: Reach) -> tuple[float, float, float]:
    return reach if isinstance(reach, tuple) else (reach, reach, reach)
