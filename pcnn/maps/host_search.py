"""Triplets of native points on the host: counted, or listed block by block of output rows.

The reach test of a pair, and its slot, are the float32 expressions of
`pcnn.maps.radius_pairs` and `pcnn.maps.local_voxels`. Groups of many pairs are compared as a
matrix, those of few side by side. Blocks do not depend on each other: threads share them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from pcnn.geometry.block_layouts import BLOCK_ROWS
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import Layout
from pcnn.maps.cell_runs import GROUP_ROWS, CellRuns, Floats, Integers
from pcnn.maps.local_voxels import Edges
from pcnn.maps.radius_pairs import Reach


class BlockBags(NamedTuple):
    """Bags of one block of output rows, by slot, then row."""

    in_index: NDArray[np.int32]  # [T] int32
    sizes: NDArray[np.int32]  # [S] int32, inputs of every bag
    rows: NDArray[np.int32]  # [S] int32, its output row, counted from the block's first
    by_row: NDArray[np.int32]  # [S] int32, bags sorted by row, then slot
    row_bags: Integers  # [rows], bags of every row
    slot_bags: Integers  # [K], bags of every slot

    @classmethod
    def of(
        cls,
        hits: Sequence[tuple[Integers, NDArray[np.int32], NDArray[np.int32]]],
        rows: int,
        volume: int,
    ) -> BlockBags:
        """Sort triplets that lie by row, then input."""
        none = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)
        row, point, slot = (np.concatenate(part) for part in zip(none, *hits, strict=True))
        # numbers of 16 bits are sorted by their digits
        short = slot.astype(np.uint16) if volume <= 1 << 16 else slot
        order = np.argsort(short, kind="stable")
        code = (slot.astype(np.int64) * rows + row).take(order)
        fresh = np.flatnonzero(code[1:] != code[:-1]) + 1
        first = np.concatenate(([0], fresh)) if len(code) else fresh
        sizes = np.diff(first, append=len(code)).astype(np.int32)
        bag_slot, bag_row = np.divmod(code.take(first), rows)
        by_row = np.argsort(bag_row.astype(np.uint16), kind="stable").astype(np.int32)
        row_bags = np.bincount(bag_row, minlength=rows)
        slot_bags = np.bincount(bag_slot, minlength=volume)
        in_index = point.take(order)
        return cls(in_index, sizes, bag_row.astype(np.int32), by_row, row_bags, slot_bags)


def joined(
    blocks: Sequence[BlockBags], in_index: NDArray[np.int32] | None, volume: int, block_rows: int
) -> Layout:
    """Layout ``bags`` of blocks that follow each other."""
    none = np.zeros(0, np.int32)
    if in_index is None:
        in_index = np.concatenate([none, *(block.in_index for block in blocks)])
    sizes = np.concatenate([none, *(block.sizes for block in blocks)])
    bags = np.cumsum([0, *(len(block.sizes) for block in blocks)])
    out = [block.rows + number * block_rows for number, block in enumerate(blocks)]
    by_row = [block.by_row + first for block, first in zip(blocks, bags, strict=False)]
    row_bags = np.concatenate([none, *(block.row_bags for block in blocks)])
    counts = np.stack([np.zeros(volume, np.int64), *(block.slot_bags for block in blocks)])[1:]
    ends = counts.ravel().cumsum()
    block, slot = np.divmod(np.arange(counts.size), volume)
    segments = np.stack((block, slot, ends - counts.ravel(), ends), 1)[counts.ravel() > 0]
    return (
        torch.from_numpy(in_index),
        _ends(sizes),
        torch.from_numpy(np.concatenate([none, *out]).astype(np.int32)),
        torch.from_numpy(np.concatenate([none, *by_row]).astype(np.int32)),
        _ends(row_bags),
        torch.from_numpy(segments),
        torch.tensor([volume, block_rows]),
    )


def _ends(sizes: NDArray[np.int32]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(([0], sizes.cumsum(dtype=np.int64))))


def local_slots(
    offsets: Sequence[Floats], edges: Edges, size: Triple, drop: bool
) -> NDArray[np.int32]:
    """The result of `pcnn.maps.local_voxels.slots_of`, as int32.

    A quotient lies in cell c or beyond, rounded half away from zero, if it is c - 1/2 or more: so
    the cell within the kernel is the number of such borders that it has passed.
    """
    slot = np.zeros(len(offsets[0]), np.int32)
    outside = np.zeros(len(slot), np.bool_)
    for offset, edge, cells in zip(offsets, edges, size, strict=True):
        quotient = offset / np.float32(edge)
        slot *= cells
        slot += cells // 2
        for border in range(cells // 2):
            slot += quotient >= np.float32(border + 0.5)
            slot -= quotient <= np.float32(-border - 0.5)
        if drop:
            outside |= np.abs(quotient) >= np.float32(cells // 2 + 0.5)
    if drop:
        slot[outside] = -1
    return slot


def cell_slots(offsets: Sequence[Floats], dilation: Triple, size: Triple) -> NDArray[np.int32]:
    """Slots of voxels, -1 where none lies: ``in - stride * out = dilation * slot - padding``."""
    slot = np.zeros(len(offsets[0]), np.int32)
    there = np.ones(len(slot), np.bool_)
    for offset, step, cells in zip(offsets, dilation, size, strict=True):
        # from the first slot on, in cells: whole numbers, halves cancel for even sizes
        place = (offset + np.float32(step * (cells - 1) / 2)).astype(np.int32)
        there &= place % step == 0
        slot = slot * cells + place // step
    return np.where(there, slot, -1)


#: Pairs that groups of few pairs compare at once, to stay within the cache.
CHUNK = 1 << 17
#: Pairs of a group from which on it is compared as a matrix.
MATRIX = 1 << 13
#: Pairs of a block that are listed at once, at most, some 50 bytes each.
LISTED = 1 << 23

#: From offsets point - centre along the axes to their slots; negative: there is no triplet.
Slots = Callable[[Sequence[Floats]], NDArray[np.int32]]

Task = TypeVar("Task")
Result = TypeVar("Result")


class Compared(NamedTuple):
    """Pairs that were compared: a matrix, or one after another."""

    rows: Integers  # centres, of the matrix's rows or of every pair
    points: Integers  # candidates, of the matrix's columns or of every pair
    offsets: tuple[Floats, Floats, Floats]  # point - centre along every axis
    near: NDArray[np.bool_]  # whether they are within reach


@dataclass(frozen=True)
class HostSearch:
    """A search of triplets among sorted points."""

    points: Floats  # [N, 3] float32
    centres: Floats  # [M, 3] float32
    runs: CellRuns  # candidates of the centres
    reach: Reach  # ball radius, or half widths of a box
    slots: Slots  # the kernel's rule
    size: Triple  # of the kernel
    every_fits: bool  # whether every pair within reach has a slot
    symmetric: bool = False  # whether the map serves as its own transpose

    @property
    def volume(self) -> int:
        """Kernel slots K."""
        return self.size[0] * self.size[1] * self.size[2]

    @property
    def compared(self) -> int:
        """Pairs that are compared: no fewer than there are triplets."""
        return self.runs.compared

    @property
    def block_rows(self) -> int:
        """Output rows of a block: fewer where each has many candidates, to bound memory."""
        widest = int(self.runs.candidates.max(initial=1))
        return max(GROUP_ROWS, min(BLOCK_ROWS, LISTED // widest // GROUP_ROWS * GROUP_ROWS))

    def count(self, most: int) -> list[int]:
        """Triplets of every block of output rows; nothing is listed."""
        found = 0

        def count(groups: tuple[int, int]) -> int:
            nonlocal found  # threads may miss each other's: a block more is counted
            own = self._count(groups) if found <= most else 0
            found += own
            return own

        return _shared(count, self._blocks())

    def bags(self, counts: Sequence[int] | None = None) -> Layout:
        """The triplets as layout ``bags`` (`pcnn.geometry.layouts`)."""
        blocks = self._blocks()
        if counts is None:
            return joined(_shared(self._list, blocks), None, self.volume, self.block_rows)
        ends = np.cumsum([0, *counts])
        in_index = np.empty(ends[-1], np.int32)
        parts = [in_index[a:b] for a, b in itertools.pairwise(ends)]
        todo = list(zip(blocks, parts, strict=True))

        def write(one: tuple[tuple[int, int], NDArray[np.int32]]) -> BlockBags:
            found = self._list(one[0])
            one[1][:] = found.in_index
            return found._replace(in_index=one[1])

        return joined(_shared(write, todo), in_index, self.volume, self.block_rows)

    def _blocks(self) -> list[tuple[int, int]]:
        """First and one-past-last group of every block of rows."""
        m = len(self.centres)
        groups = np.searchsorted(self.runs.rows, [*range(0, m, self.block_rows), m]).tolist()
        return list(itertools.pairwise(groups))

    def _count(self, groups: tuple[int, int]) -> int:
        if self.every_fits:
            return sum(int(np.count_nonzero(part.near)) for part in self._compared(*groups))
        hits = (self._hits(part, 0) for part in self._compared(*groups))
        return sum(len(slot) for _, _, slot in hits)

    def _list(self, groups: tuple[int, int]) -> BlockBags:
        first = int(self.runs.rows[groups[0]])
        hits = [self._hits(part, first) for part in self._compared(*groups)]
        rows = int(self.runs.rows[groups[1]]) - first
        return BlockBags.of(hits, rows, self.volume)

    def _hits(
        self, part: Compared, first: int
    ) -> tuple[Integers, NDArray[np.int32], NDArray[np.int32]]:
        """Rows, counted from the first one of the block, points and slots of the triplets."""
        hit = np.flatnonzero(part.near)
        if part.near.ndim == 2:
            counts = np.count_nonzero(part.near, axis=1)
            width = part.near.shape[1]
            rows = np.repeat(part.rows - first, counts)
            points = part.points.take(hit - np.repeat(np.arange(len(counts)) * width, counts))
        else:
            rows, points = part.rows.take(hit) - first, part.points.take(hit)
        slot = self.slots([axis.ravel().take(hit) for axis in part.offsets])
        points = points.astype(np.int32)
        if self.every_fits:
            return rows, points, slot
        kept = slot >= 0
        return rows[kept], points[kept], slot[kept]

    def _compared(self, first: int, last: int) -> Iterator[Compared]:
        """Compare all pairs of some groups, by centre, then point."""
        runs = self.runs
        widths = np.diff(runs.rows[first : last + 1])
        pairs = widths * runs.candidates[first:last]
        # groups of few pairs that follow each other go together
        together = np.where(pairs >= MATRIX, CHUNK, pairs).cumsum() // CHUNK
        fresh = (pairs[1:] >= MATRIX) | (pairs[:-1] >= MATRIX) | (together[1:] != together[:-1])
        cuts = [first, *(first + 1 + np.flatnonzero(fresh)).tolist(), last]
        for begin, end in itertools.pairwise(cuts):
            candidates = _candidates(runs, begin, end)
            if not len(candidates):
                continue
            rows = np.arange(runs.rows[begin], runs.rows[end])
            if end == begin + 1:
                yield from self._as_matrix(rows, candidates)
                continue
            group = np.repeat(np.arange(begin, end), widths[begin - first : end - first])
            counts = runs.candidates[group]
            firsts = np.cumsum(runs.candidates[begin:end]) - runs.candidates[begin:end]
            # where the candidates of a row begin, less where its pairs begin
            shift = firsts[group - begin] - counts.cumsum() + counts
            rows = np.repeat(rows, counts)
            candidates = candidates.take(np.arange(len(rows)) + np.repeat(shift, counts))
            apart = self.points[candidates] - self.centres[rows]  # [P, 3]
            offsets = apart[:, 0], apart[:, 1], apart[:, 2]
            yield Compared(rows, candidates, offsets, self._near(offsets))

    def _as_matrix(self, rows: Integers, candidates: Integers) -> Iterator[Compared]:
        """Compare every centre with every candidate, so many centres at once as the cache takes."""
        x, y, z = self.points[candidates].T
        step = max(1, CHUNK // len(candidates))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            near = self.centres[part, :, None]  # [n, 3, 1]
            offsets = x - near[:, 0], y - near[:, 1], z - near[:, 2]  # [n, m]
            yield Compared(part, candidates, offsets, self._near(offsets))

    def _near(self, offsets: tuple[Floats, Floats, Floats]) -> NDArray[np.bool_]:
        """`pcnn.maps.radius_pairs.within_reach`, axis by axis."""
        dx, dy, dz = offsets
        if isinstance(self.reach, tuple):
            x, y, z = (np.float32(width) for width in self.reach)
            inside: NDArray[np.bool_] = np.abs(dx) <= x
            inside &= np.abs(dy) <= y
            inside &= np.abs(dz) <= z
            return inside
        with np.errstate(over="ignore"):
            squares = dx * dx
            squares += dy * dy
            squares += dz * dz
        near: NDArray[np.bool_] = squares <= np.float32(self.reach * self.reach)
        return near


def _candidates(runs: CellRuns, first: int, last: int) -> Integers:
    """Points in the runs of some groups, one after another."""
    begin, end = runs.ends[first], runs.ends[last]
    starts, lengths = runs.starts[begin:end], runs.lengths[begin:end]
    ends = lengths.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    found: Integers = np.arange(total) + np.repeat(starts - ends + lengths, lengths)
    return found


def _shared(work: Callable[[Task], Result], todo: Sequence[Task]) -> list[Result]:
    """Results in order; numpy lets go of the interpreter while it computes."""
    threads = min(torch.get_num_threads(), len(todo))
    if threads < 2:
        return [work(one) for one in todo]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, todo))
