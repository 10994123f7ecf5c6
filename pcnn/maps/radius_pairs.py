"""All pairs of points within reach of each other, by sorting points into cells, in torch.

Source points are sorted by (cloud, cell) with cells of side 2R. The box of side 2R around a query
touches two cells per axis, and cells follow each other along z: the eight cells are four runs of
the sorted points, each found by two binary searches, and no source is met twice (PointCNN++,
section 3.3: sorting and searching). Runs are counted, then walked for one block of queries after
another; only pairs within reach are kept.

The reach test of a pair is one float32 expression, the same in every implementation, with
every operation rounded on its own (no fused multiply-add):

    ball   (dx * dx + dy * dy) + dz * dz <= float32(R * R)       dx = query.x - source.x, ...
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
from pcnn.geometry.checks import check_finite, check_points

#: Ball radius, or half widths of a box along x, y and z [m].
Reach = float | tuple[float, float, float]

#: Candidate pairs compared at once, to bound memory.
CHUNK = 1 << 21

#: Pairs that are listed at most, of some 32 bytes each, and compared.
MOST_PAIRS = 225_000_000
MOST_COMPARED = 32 * MOST_PAIRS

#: Cells an axis is cut into at most: 54 bits for three axes leave room for 511 clouds.
AXIS_CELLS = 1 << 18

MAX_CLOUDS = 511

# cells and boxes are this much larger than R asks for: no rounding, neither of the float32
# comparison nor of the float64 cell, moves a pair within reach out of the cells searched
BOX_MARGIN = 1 + 2.0**-10
CELL_MARGIN = 1 + 2.0**-9

# R * R must be a normal float32 number
SMALLEST_REACH, LARGEST_REACH = 2.0**-60, 2.0**60


class Runs(NamedTuple):
    """Source points near every query, as runs of the sorted order."""

    order: Tensor  # [N] int64, source rows sorted by (cloud, cell)
    starts: Tensor  # [M, 4] int64, first position of every run in order
    counts: Tensor  # [M, 4] int64, points of every run


def radius_pairs(
    source: Tensor,  # [N, 3] float32 points [m]
    source_batch: Tensor | None,  # [N] integers, cloud of every point; None means one cloud
    query: Tensor,  # [M, 3] float32 points [m]
    query_batch: Tensor | None,  # [M] integers; None means one cloud
    reach: float | Sequence[float],
) -> tuple[Tensor, Tensor]:
    """Pairs (query, source) of one cloud within reach, exact and inclusive at the boundary."""
    reach = checked_reach(reach)
    for name, points, batch in (("source", source, source_batch), ("query", query, query_batch)):
        _check(name, points, batch)
    if not len(source) or not len(query):
        empty = torch.zeros(0, dtype=torch.int64, device=source.device)
        return empty, empty
    runs = _runs(source, _clouds(source, source_batch), query, _clouds(query, query_batch), reach)
    # [3, N]: one column after another is gathered several times as fast as rows
    return pairs_in_runs(source.index_select(0, runs.order).T.contiguous(), runs, query, reach)


def pairs_in_runs(
    by_cell: Tensor, runs: Runs, query: Tensor, reach: Reach
) -> tuple[Tensor, Tensor]:
    """The pairs within reach among those of runs."""
    check_pairs(query, reach, 0, int(runs.counts.sum()))
    columns = query.T.contiguous()
    codes, total = [runs.order.new_empty(0)], 0
    for block in blocks(runs):
        gaps = gaps_of(by_cell, columns[:, block.queries], block)
        hit = within_reach(gaps, reach).nonzero().squeeze(1)
        rows = block.at[hit] + block.queries.start
        # [T] query * N + source: the runs of a query are not in the order of source rows
        codes.append(sorted_codes(rows * by_cell.shape[1] + runs.order[block.place[hit]]))
        total += len(hit)
        check_pairs(query, reach, total, 0)
    return split_codes(torch.cat(codes), max(by_cell.shape[1], 1))


def check_pairs(query: Tensor, reach: Reach, pairs: int, compared: int) -> None:
    """Refuse so many pairs that they take all memory, or all day."""
    if pairs <= MOST_PAIRS and compared <= MOST_COMPARED:
        return
    number = f"{pairs:,} pairs or more" if pairs > MOST_PAIRS else f"{compared:,} pairs to compare"
    raise DenseCloudError(
        f"radius search: {len(query):,} points and a reach of {reach} m make {number}, where "
        f"{MOST_PAIRS:,} pairs may be listed. Thin the points (pcnn.native_points(..., thin=...)), "
        "or use a smaller radius"
    )


def checked_reach(reach: float | Sequence[float]) -> Reach:
    """Return a ball radius, or the half widths of a box, as floats."""
    values = [float(reach)] if isinstance(reach, int | float) else [float(v) for v in reach]
    if len(values) not in (1, 3) or not all(
        SMALLEST_REACH <= value <= LARGEST_REACH for value in values
    ):
        raise ValueError(
            "reach must be a positive radius [m], or three half widths of a box (x, y, z); "
            f"got {reach!r}"
        )
    return values[0] if len(values) == 1 else (values[0], values[1], values[2])


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


def _check(name: str, points: Tensor, batch: Tensor | None) -> None:
    try:
        check_points(points, batch)
        check_finite(points)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if points.dtype != torch.float32:
        raise ValueError(
            f"{name}: points must be float32, got {points.dtype}; subtract each cloud's centre in "
            "float64 first, then round"
        )
    if batch is not None and len(batch):
        first, last = int(batch.min()), int(batch.max())
        if first < 0 or last >= MAX_CLOUDS:
            raise ValueError(f"{name}: batch indices {first}..{last} leave 0..{MAX_CLOUDS - 1}")


def _clouds(points: Tensor, batch: Tensor | None) -> Tensor:
    if batch is None:
        return torch.zeros(len(points), dtype=torch.int64, device=points.device)
    return batch.to(torch.int64)


def _runs(
    source: Tensor, source_batch: Tensor, query: Tensor, query_batch: Tensor, reach: Reach
) -> Runs:
    """Runs of the cells that the box of every query touches."""
    half_widths = reach if isinstance(reach, tuple) else (reach,) * 3
    widths = torch.tensor(half_widths, dtype=torch.float64, device=source.device)
    points, centres = source.to(torch.float64), query.to(torch.float64)
    low, high = points.aminmax(dim=0)
    # larger cells than 2R cover a box of 2R as well: an axis never needs more bits than it has
    side = torch.maximum(2 * widths * CELL_MARGIN, (high - low) / (AXIS_CELLS - 2))

    def cells(places: Tensor) -> Tensor:
        # one monotone function of the coordinate for both sides; far queries stay outside
        return torch.floor((places - low) / side).clamp_(-2, AXIS_CELLS + 1).to(torch.int64)

    own = cells(points)
    extent = own.amax(0) + 1  # [3]

    def keys(batch: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return ((batch * extent[0] + x) * extent[1] + y) * extent[2] + z

    sorted_keys, order = keys(source_batch, *own.unbind(1)).sort(stable=True)
    first = cells(centres - widths * BOX_MARGIN)
    last = cells(centres + widths * BOX_MARGIN)
    z_first, z_last = first[:, 2].clamp(min=0), torch.minimum(last[:, 2], extent[2] - 1)
    starts, counts = [], []
    for step_x in (0, 1):
        for step_y in (0, 1):
            x, y = first[:, 0] + step_x, first[:, 1] + step_y
            inside = (x >= 0) & (x < extent[0]) & (x <= last[:, 0]) & (z_first <= z_last)
            inside &= (y >= 0) & (y < extent[1]) & (y <= last[:, 1])
            start = torch.searchsorted(sorted_keys, keys(query_batch, x, y, z_first))
            end = torch.searchsorted(sorted_keys, keys(query_batch, x, y, z_last), right=True)
            starts.append(start)
            counts.append(torch.where(inside, end - start, 0))
    return Runs(order, torch.stack(starts, dim=1), torch.stack(counts, dim=1))


class Block(NamedTuple):
    """Candidates of some queries."""

    queries: slice  # which, consecutive ones
    at: Tensor  # [C] int64, query of every candidate, counted from the first of the block
    place: Tensor  # [C] int64, its position in the sorted order


def blocks(runs: Runs) -> Iterator[Block]:
    """Consecutive queries with `CHUNK` candidates together, or one query with more."""
    each = runs.counts.sum(1)
    ends = each.cumsum(0)  # [M] candidates up to a query
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


def gaps_of(by_cell: Tensor, query: Tensor, block: Block) -> list[Tensor]:
    """Differences ``[C]``, query - source along x, y and z, of the candidates of a block."""
    return [
        to.index_select(0, block.at).sub_(of.index_select(0, block.place))
        for to, of in zip(query, by_cell, strict=True)
    ]


def sorted_codes(codes: Tensor) -> Tensor:
    """Codes in rising order; on a CPU by numpy, several times as fast as torch."""
    if codes.device.type == "cpu":
        return torch.from_numpy(np.sort(codes.numpy()))
    return codes.sort().values


def split_codes(codes: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Query and source of codes ``query * rows + source``."""
    queries = torch.div(codes, rows, rounding_mode="floor")
    return queries, codes - queries * rows
