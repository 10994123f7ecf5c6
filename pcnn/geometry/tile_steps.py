"""Tiles of output rows, and the inputs that they gather step by step.

A tile is `TILE_ROWS` places of an order of the output rows. A step of a tile takes one input of one
slot to every place: a slot of which the fullest row has m inputs takes m steps, the n-th for the
rows that have n inputs. Rows are ordered so that those of a tile fill the same slots as often, and
tiles of many steps come first, so that long ones start first.

A kernel may be cut into sections, the slots ``g, g + S, ...``, each with an order of the rows of
its own: on sparse clouds a row fills few slots of a large kernel, and tiles of all slots are mostly
padding; within a plane of slots with one z the rows are more similar.

What is here is defined by the triplets and orders rows by their fullest slot alone. Device kernels
order them by the Gray code of the slots that they fill (`pcnn.maps.tile_steps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

#: Layouts of this kind: as one section, and in as many as pay.
STEPS = ("steps", "fitting_steps")

#: Output rows of a tile.
TILE_ROWS = 128

#: Begin and end of a tile that is spare memory.
BEYOND = (1 << 31) - 1

#: Most sections a map is cut into.
MAX_SECTIONS = 32

#: Kernels of at most so many slots are never cut: their rows are similar enough.
WHOLE_SLOTS = 32

#: A map is sparse where its rows fill less than this share of the slots on average. On LiDAR scans
#: (0.05 to 0.13 of 5^3) sections are two to three times as fast, in rooms (0.4) no faster.
SPARSE = 0.2

#: Rows whose float32 sums (of 32 channels) still fit a cache of 64 MB; of more, sections pay only
#: if a row fills so many slots on average.
CACHED_ROWS = 1 << 19
FEW_SLOTS = 4

#: Most triplets whose positions int32 holds.
MOST_TRIPLETS = (1 << 31) - 1

#: Largest neighbour table, or ranges of inputs, in bytes; beyond it only the other layouts serve.
TABLE_BUDGET_BYTES = 16 << 30

#: Steps, 17 MB, that a map may take beyond what large ones take for their triplets.
SPARE_STEPS = 1 << 15

#: Steps, 2 MB, that every map may take: those of few rows are listed, however dense they are.
FEW_STEPS = 1 << 12

Layout = tuple[Tensor, ...]


def steps(kernel_map: KernelMap) -> Layout:
    """``out [tiles, 128]``, ``begin``, ``end [tiles]``, ``slot [S]``, ``rows [S, 128]`` int32.

    Steps of tile t are ``begin[t]..end[t]``; what lies between those of tiles is undefined. Places
    without an output row hold -1, and so do steps where a row has no input.

    Where slots hold several inputs, two more tensors follow: ``starts [tiles, K + 1, 128]`` and
    ``inputs [T]`` int32. Slot k of a place has ``inputs[starts[t, k]..starts[t, k + 1]]``.
    There is room for `stored_steps`, which scans stay below. Tiles of dense clouds may lie beyond:
    their begin is -1, and they are summed range by range.
    """
    return _mirrored(kernel_map, "steps") or _sections(kernel_map, 1)


def fitting_steps(kernel_map: KernelMap) -> Layout:
    """`steps` of large kernels on sparse clouds in sections, where those pay (`is_sparse`)."""
    if not (may_be_cut(kernel_map) and is_sparse(kernel_map, int(kernel_map.offsets[-1]))):
        return kernel_map.layout("steps")
    mirrored = _mirrored(kernel_map, "fitting_steps")
    return mirrored or _sections(kernel_map, sections_of(kernel_map))


def may_be_cut(kernel_map: KernelMap) -> bool:
    """True if the number of triplets decides about a map's sections."""
    large = kernel_map.one_per_slot and kernel_map.volume > WHOLE_SLOTS
    return large and sections_of(kernel_map) > 1


def is_sparse(kernel_map: KernelMap, triplets: int) -> bool:
    """True if the rows of a map with so many triplets fill few of its slots, but not too few."""
    rows = kernel_map.n_out
    many = rows > CACHED_ROWS and triplets < FEW_SLOTS * rows
    return triplets < SPARSE * kernel_map.volume * rows and not many


def sections_of(kernel_map: KernelMap) -> int:
    """Sections a map is cut into: the kernel's size along z, the axis of neighbouring slots."""
    kernel = kernel_map.edges.kernel
    return kernel.size[2] if kernel is not None and kernel.size[2] <= MAX_SECTIONS else 1


def _mirrored(kernel_map: KernelMap, name: str) -> Layout | None:
    """Steps of the transpose of a symmetric map: the same rows, slots mirrored."""
    other = kernel_map.transpose()
    if not (kernel_map.symmetric and kernel_map.one_per_slot and other.has(name)):
        return None
    out, begin, end, slot, rows = other.layout(name)
    return out, begin, end, kernel_map.volume - 1 - slot, rows


def _sections(kernel_map: KernelMap, sections: int) -> Layout:
    """Steps of every section of the slots, each with an order of the rows."""
    in_index, slot, row_offsets = kernel_map.layout("rows_csr")
    rows, volume, device = kernel_map.n_out, kernel_map.volume, in_index.device
    check_ranges(rows, volume, len(in_index))
    row = torch.arange(rows, device=device).repeat_interleave(row_offsets.diff())
    entry = row * volume + slot
    fan_in = torch.bincount(entry, minlength=rows * volume)
    starts = pad(fan_in.cumsum(0), (1, 0))
    rank = torch.arange(len(entry), device=device) - starts[entry]
    tiles, section = -(-rows // TILE_ROWS), slot % sections
    # fullest slot first in order; rows without an input of the section stand last
    fullest = fan_in.new_zeros(sections, rows)
    fullest.view(-1).scatter_reduce_(0, section * rows + row, rank + 1, "amax")
    order = torch.argsort(torch.where(fullest > 0, fullest, BEYOND), dim=1, stable=True)
    out = order.new_full((sections, tiles * TILE_ROWS), -1)
    out[:, :rows] = order
    if sections > 1:
        out[:, :rows] = torch.where(fullest.gather(1, order) > 0, order, -1)
    place = torch.empty_like(order).scatter_(
        1, order, torch.arange(rows, device=device).expand_as(order)
    )
    place = place[section, row]
    tile = section * tiles + torch.div(place, TILE_ROWS, rounding_mode="floor")
    most = int(rank.max()) + 1 if len(rank) else 1
    step, inverse = torch.unique((tile * volume + slot) * most + rank, return_inverse=True)
    edges = torch.arange(sections * tiles + 1, device=device) * (volume * most)
    ends = torch.searchsorted(step, edges)
    begin, end = ends[:-1], ends[1:]
    longest_first = torch.argsort(end - begin, descending=True, stable=True)
    size = sections * tiles * -(-volume // sections)
    if not kernel_map.one_per_slot:
        size = stored_steps(len(in_index), tiles, volume)
        begin, end = (torch.where(end <= size, one, -1) for one in (begin, end))
    number = torch.div(step, most, rounding_mode="floor") % volume
    listed = in_index.new_full((max(size, len(step)), TILE_ROWS), -1)
    listed[inverse, place % TILE_ROWS] = in_index
    found = out.view(-1, TILE_ROWS)[longest_first], begin[longest_first], end[longest_first]
    slots = pad(number, (0, max(0, size - len(number))))[:size]
    layout = *(one.to(torch.int32) for one in (*found, slots)), listed[:size]
    if kernel_map.one_per_slot:
        return layout
    columns = torch.arange(volume + 1, device=device)
    entries = found[0].clamp(min=0)[:, None, :] * volume + columns[:, None]
    ranges = torch.where(found[0][:, None, :] >= 0, starts[entries], 0)
    return *layout, ranges.to(torch.int32), in_index


def table_of_steps(layout: Sequence[Tensor], n_out: int, volume: int) -> Tensor:
    """Neighbour table ``[N_out, K]`` int32 of steps that hold one input a slot."""
    out, begin, end, slot, rows = layout
    if not len(out):
        return rows.new_full((n_out, volume), -1)
    # steps of sections do not follow each other as tiles do; tiles without a step stand last
    first, order = torch.where(end > begin, begin, BEYOND).sort()
    number = torch.arange(len(slot), device=slot.device, dtype=torch.int32)
    tile = order[(torch.searchsorted(first, number, right=True) - 1).clamp(min=0)]
    listed = (begin[tile] <= number) & (number < end[tile])
    filled = listed[:, None] & (rows >= 0)  # [S, TILE_ROWS]
    entries = out[tile].long() * volume + torch.where(listed, slot, 0)[:, None]
    # what is not filled falls on a spare entry behind the table
    entries = torch.where(filled, entries, n_out * volume)
    table = rows.new_full((n_out * volume + 1,), -1)
    table[entries] = torch.where(filled, rows, -1)
    return table[:-1].view(n_out, volume)


def pairs_of_steps(layout: Sequence[Tensor]) -> Layout:
    """``in_index``, ``out_index [T]`` int32 by slot, and ``[K]`` int64 their numbers, of ranges."""
    out, *_, starts, inputs = layout
    sizes = (starts[:, 1:] - starts[:, :-1]).transpose(0, 1)  # [K, tiles, TILE_ROWS]
    flat, begin = sizes.flatten(), starts[:, :-1].transpose(0, 1).flatten()
    shift = begin - (flat.cumsum(0, dtype=torch.int32) - flat)
    at = shift.repeat_interleave(flat)
    at += torch.arange(len(at), dtype=torch.int32, device=at.device)
    out_index = out.expand_as(sizes).flatten().repeat_interleave(flat)
    return inputs[at], out_index, sizes.sum((1, 2), dtype=torch.int64)


def stored_steps(triplets: int, tiles: int, volume: int) -> int:
    """Steps of slots with several inputs that there is room for: nothing waits for the device.

    The least of

    * T, as a step takes one triplet at least;
    * two for every slot of a tile, or `FEW_STEPS`: what needs more is better summed row by row;
    * ``(2 + K / 24) T / TILE_ROWS``, two a tile and `SPARE_STEPS`, which scans stay below. The more
      slots, the less do rows of a tile have the same ones filled. Of 0.2 to 4 million points of
      rooms and LiDAR, all steps are 1.7 to 2.5 T / TILE_ROWS at K = 27 and 4.1 to 6.2 at K = 125
      (8.1 of a quarter of the LiDAR points). Of fewer points they are more: up to 13 T / TILE_ROWS
      of a few thousand, which the spare steps hold.
    """
    usual = (48 + volume) * triplets // (24 * TILE_ROWS) + 2 * tiles + SPARE_STEPS
    return min(triplets, max(2 * tiles * volume, FEW_STEPS), usual)


def is_huge(kernel_map: KernelMap) -> bool:
    """True if ranges of inputs, of either side, would be refused."""
    edges, triplets = kernel_map.edges, kernel_map.known_triplets or 0
    ranges = 4 * max(edges.rows) * (edges.volume + 1)
    return triplets > MOST_TRIPLETS or ranges > TABLE_BUDGET_BYTES


def check_ranges(rows: int, volume: int, triplets: int) -> None:
    """Refuse ranges of inputs that int32 does not count, or that take too much memory."""
    if triplets > MOST_TRIPLETS:
        raise ValueError(
            f"{triplets} triplets are more than int32 positions count; use the layout pairs"
        )
    check_table_size(rows, volume + 1)


def check_table_size(rows: int, volume: int) -> None:
    """Refuse a number for every row and slot where that takes too much memory."""
    size = 4 * rows * volume
    if size > TABLE_BUDGET_BYTES:
        raise ValueError(
            f"{rows} rows x {volume} slots take {size} bytes, over the budget of "
            f"{TABLE_BUDGET_BYTES}; use the layout pairs"
        )
