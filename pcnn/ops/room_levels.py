"""Sites of all levels of a network in memory of fixed size, without a look at their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import KeyFormat
from pcnn.geometry.kernel_slots import Triple
from pcnn.kernels.beside import Beside
from pcnn.maps.cell_bits import CellBits
from pcnn.maps.levels import (
    EXTENT_WORDS,
    Levels,
    extent_of,
    fitting_counts,
    pack_cells,
    scratch_words,
    unique_sites,
)


class WaitsForDevice(Exception):
    """A plan that waits for the device, so that no CUDA graph holds it; the message says why."""


@dataclass(frozen=True)
class Room:
    """Sizes of a plan that does not know its cloud: those of the tensors that it makes."""

    points: int  # cells that it takes
    rows: tuple[int, ...]  # sites of the finest level, then of every other level that is sorted
    passes: tuple[int, int]  # of the two sorts
    words: int = 0  # of the bitmaps that levels are found in; 0 where they are sorted
    whole: bool = False  # the finest level is found there too
    #: maps, by number in the recipe and side, whose ``fitting_steps`` are in sections
    cut: frozenset[tuple[int, bool]] = frozenset()

    def holds(self, other: Room) -> bool:
        """True if a cloud that takes the other room fits into this one."""
        theirs, own = ((*r.rows, *r.passes, r.words) for r in (other, self))
        return all(needed <= there for needed, there in zip(theirs, own, strict=True))


#: Of the report of a plan, behind the extent of the cloud: the passes that sorting the finest sites
#: and the levels took, the words that bitmaps take, and the number of finest sites. Those of all
#: other levels follow.
HEAD = EXTENT_WORDS + 4
ROOT_PASSES, LEVEL_PASSES, WORDS, FINEST = range(EXTENT_WORDS, HEAD)

#: Work that a plan launches beside its tables, from the order of the cells by row ``[P]`` int32,
#: the row of every cell ``[P]`` int64, and the number of rows.
Meanwhile = Callable[[Tensor, Tensor, int], None]


@dataclass(frozen=True)
class RoomLevels:
    """Sites of all levels; of a cloud that does not fit there are none."""

    report: Tensor  # int32 numbers, from the extent on
    keys: Tensor  # [rows] int64 of the finest level
    levels: Levels | None  # all others, if there are any
    rows: list[int]  # of every level, the finest first
    counts: Tensor  # [L] int32 sites of every level
    inverse: Tensor | None  # [P] int64 row of every cell; None: of keys, which are the rows
    order: Tensor | None  # [P] int32 cells by row


def levels_in_room(
    cells: Tensor,  # [room.points, 4] int32, or sorted keys [room.points] int64
    count: Tensor,  # [1] int32 on the device: the first so many are the cloud
    batch_size: int,
    strides: Sequence[Triple],
    key_format: KeyFormat,
    room: Room,
    words: int,
    beside: Beside,
    meanwhile: Meanwhile | None,
) -> RoomLevels:
    """Launch what finds the sites of all levels."""
    n, device = room.points, cells.device
    finest = min(room.rows[0], n)  # no level has more sites than a finer one
    rows = [finest, *(min(own, finest) for own in room.rows[1:])]
    bits = CellBits.of(room.words, device) if room.words else None
    if bits is not None:
        with beside.branch(bits):
            bits.marks.zero_()
    parts = [words, scratch_words(1, n)]
    parts += [scratch_words(max(1, len(strides)), finest) if bits is None else 0]
    zeros = torch.zeros(sum(parts), dtype=torch.int32, device=device)
    report, scratch, more = zeros.split_with_sizes(parts)
    extent, found = report[:EXTENT_WORDS], report[FINEST : HEAD + len(strides)]
    if cells.ndim == 1:
        keys = cells
        extent_of(keys, key_format, extent, count)
    else:
        keys, _ = pack_cells(cells, key_format, extent, count)

    def by_sort(counts: Tensor | None) -> Levels:
        needed = report[ROOT_PASSES:LEVEL_PASSES]
        sizes = counts, scratch, room.passes[0], needed, rows[:1]
        return unique_sites(keys, extent, [(1, 1, 1)], key_format, count, *sizes)

    levels: Levels | None = None
    root: Levels | None = None
    needed = report[WORDS:FINEST]
    if bits is not None and room.whole and keys is not cells:
        beside.join()
        with beside.branch(keys, zeros):  # the sort finds the order alone
            root = by_sort(None)
        every = [(1, 1, 1), *strides]
        box = extent, every, key_format, batch_size
        levels = bits.sites(keys, count, *box, rows, found, needed, whole=True)
        sites = levels.keys[0, :finest]
    else:
        if keys is cells:
            found[:1].copy_(count)
            sites = keys[:finest]
        else:
            root = by_sort(found[:1])
            sites = root.keys[0, :finest]
        fitting = fitting_counts(found[:1], rows[:1])
        if bits is not None:
            beside.join()
            given = extent, strides, key_format, batch_size, rows[1:], found[1:], needed
            levels = bits.sites(sites, fitting, *given)
        elif strides:
            passes, needed = room.passes[1], report[LEVEL_PASSES:WORDS]
            sizes = found[1:], more, passes, needed, rows[1:]
            levels = unique_sites(sites, extent, strides, key_format, fitting, *sizes)
    inverse = order = None
    if root is not None:
        order = root.order
        with beside.branch(root):
            inverse = root.inverse[0].to(torch.int64)
            if meanwhile is not None:
                meanwhile(order, inverse, finest)
    counts = fitting_counts(found, rows)
    return RoomLevels(report, sites, levels, rows, counts, inverse, order)
