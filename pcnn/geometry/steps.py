"""Tiles of output rows, and the inputs that they gather step by step.

A tile is `TILE_ROWS` places of an order of the output rows. A step of a tile takes one input of one
slot to every place: a slot of which the fullest row has m inputs takes m steps, the n-th for the
rows that have n inputs. Rows are ordered so that those of a tile fill the same slots as often, and
tiles of many steps come first, so that long ones start first.

A kernel may be cut into sections, the slots ``g, g + S, ...``, each with an order of the rows of
its own: on sparse clouds a row fills few slots of a large kernel, and tiles of all slots are mostly
padding; within a plane of slots with one z the rows are more similar.

What is here is defined by the triplets and orders rows by their fullest slot alone. Device kernels
order them by the Gray code of the slots that they fill (`pcnn.maps.steps`).
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

#: Steps whose inputs are looked up at once, to bound memory.
STEPS_AT_ONCE = 1 << 16

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
    """True if the rows of a map with so many triplets fill few of its slots, but not too few.

    Sections meet in float32 sums. Of many rows those do not stay in the cache, and rows that fill
    next to nothing save less than that costs.
    """
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
    """Steps of every section of the slots, one after another."""
    in_index, slot_index, row_offsets = kernel_map.layout("rows_csr")
    rows, volume, triplets = kernel_map.n_out, kernel_map.volume, in_index.shape[0]
    check_ranges(rows, volume, triplets)
    # rows, and slots within a row, lie one after another: the running sum is where each ends
    row = torch.repeat_interleave(
        torch.arange(rows, device=in_index.device), row_offsets.diff(), output_size=triplets
    )
    fan_in = in_index.new_zeros(rows * volume)
    fan_in.index_add_(0, row * volume + slot_index, torch.ones_like(in_index))
    fan_in = fan_in.view(rows, volume)
    if not kernel_map.one_per_slot:
        return steps_of(fan_in, in_index)
    number = torch.arange(volume, device=in_index.device) % sections
    parts = []
    for section in range(sections):
        own = torch.where(number == section, fan_in, 0)
        width = -(-volume // sections)
        parts.append(_single_steps(own, in_index, _starts(fan_in), width, sections > 1))
    lengths = [part[3].shape[0] for part in parts]
    shifts = torch.tensor([sum(lengths[:place]) for place in range(sections)])
    out, begin, end, slot, listed = (torch.cat(column) for column in zip(*parts, strict=True))
    shift = shifts.to(begin).repeat_interleave(len(begin) // sections)
    order = torch.argsort(end - begin, descending=True, stable=True)
    return out[order], (begin + shift)[order], (end + shift)[order], slot, listed


def _starts(fan_in: Tensor) -> Tensor:
    """``[rows * K + 1]`` int32: where the inputs of every row and slot begin."""
    return pad(torch.cumsum(fan_in.flatten(), 0, dtype=torch.int32), (1, 0))


def steps_of(
    fan_in: Tensor,  # [rows, K] int32, inputs of every slot
    in_index: Tensor,  # [T] int32 inputs by row, then slot
) -> Layout:
    """`steps` of slots with several inputs; nothing waits."""
    (rows, volume), starts = fan_in.shape, _starts(fan_in)
    size = stored_steps(len(in_index), -(-rows // TILE_ROWS), volume)
    out, begin, end, *listed = _listed(fan_in, in_index, starts, size)
    begin, end = (torch.where(end <= size, one, -1) for one in (begin, end))
    columns = torch.arange(volume + 1, device=in_index.device)
    entries = out.clamp(min=0)[:, None, :] * volume + columns[:, None]
    ranges = torch.where(out[:, None, :] >= 0, starts[entries], 0)
    return out, begin, end, *listed, ranges, in_index


def _single_steps(
    fan_in: Tensor, in_index: Tensor, starts: Tensor, slots: int, cut: bool
) -> Layout:
    """Steps of a section with one input a slot; rows without any have a place where it is whole."""
    size = -(-len(fan_in) // TILE_ROWS) * slots
    out, *others = _listed(fan_in, in_index, starts, size)
    there = fan_in.any(1)[out.clamp(min=0)] if cut else torch.ones_like(out, dtype=torch.bool)
    return torch.where(there, out, -1), *others


def _listed(fan_in: Tensor, in_index: Tensor, starts: Tensor, size: int) -> Layout:
    """`steps` as far as there is room; begin and end are those with room for all."""
    (rows, volume), device = fan_in.shape, in_index.device
    tiles = -(-rows // TILE_ROWS)
    fullest = fan_in.amax(1) if volume else fan_in.new_zeros(rows)
    order = torch.argsort(torch.where(fullest > 0, fullest, BEYOND), stable=True)
    out = order.new_full((tiles * TILE_ROWS,), -1)
    out[:rows] = order
    own = fan_in.new_zeros(tiles * TILE_ROWS, volume)
    own[:rows] = fan_in[order]
    most = own.view(tiles, TILE_ROWS, volume).amax(1).to(torch.int64)  # [tiles, K]
    longest_first = torch.argsort(most.sum(1), descending=True, stable=True)
    out, most = out.view(tiles, TILE_ROWS)[longest_first], most[longest_first]
    slot, listed = in_index.new_zeros(size), in_index.new_full((size, TILE_ROWS), -1)
    ends = most.flatten().cumsum(0)
    for first in range(0, size, STEPS_AT_ONCE):
        number = torch.arange(first, min(size, first + STEPS_AT_ONCE), device=device)
        # which of the tiles' slots every step is of: no host sync, where repeating would take one
        entry = torch.searchsorted(ends, number, right=True).clamp(max=most.numel() - 1)
        rank = number - ends[entry] + most.flatten()[entry]
        tile = torch.div(entry, volume, rounding_mode="floor")
        column = entry - tile * volume
        place = out[tile].clamp(min=0) * volume + column[:, None]  # [steps, TILE_ROWS]
        there = (rank[:, None] < fan_in.reshape(-1)[place]) & (out[tile] >= 0)
        slot[number] = column.to(torch.int32)
        position = torch.where(there, starts[place] + rank[:, None], 0)
        listed[number] = torch.where(there, in_index[position], -1) if len(in_index) else -1
    end = most.sum(1).cumsum(0)
    begin = end - most.sum(1)
    return (*(one.to(torch.int32) for one in (out, begin, end)), slot, listed)


def table_of_steps(layout: Sequence[Tensor], n_out: int, volume: int) -> Tensor:
    """Neighbour table ``[N_out, K]`` int32 of steps that hold one input a slot.

    Takes 8 bytes for every place of every step while it works.
    """
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


def pairs_of_steps(layout: Sequence[Tensor], n_out: int) -> Layout:
    """``in_index``, ``out_index [T]`` int32 by slot, and ``[K]`` int64 their numbers, of ranges.

    The host waits once.
    """
    out, *_, starts, inputs = layout
    sizes = (starts[:, 1:] - starts[:, :-1]).sum((0, 2), dtype=torch.int64)
    place = torch.argsort(torch.where(out < 0, n_out, out).flatten(), stable=True)[:n_out]
    tile, column = torch.div(place, TILE_ROWS, rounding_mode="floor"), place % TILE_ROWS
    rows = torch.arange(n_out, dtype=torch.int32, device=inputs.device)
    in_index, out_index = inputs.new_empty(2, len(inputs)).unbind()
    first = 0
    for slot, size in enumerate(sizes.tolist()):
        begin = starts[tile, slot, column]
        own = starts[tile, slot + 1, column] - begin  # [N_out]
        shift = begin - (own.cumsum(0, dtype=torch.int32) - own)
        at = torch.repeat_interleave(shift, own, output_size=size)
        at += torch.arange(size, dtype=torch.int32, device=inputs.device)
        in_index[first : first + size] = inputs[at]
        out_index[first : first + size] = torch.repeat_interleave(rows, own, output_size=size)
        first += size
    return in_index[:first], out_index[:first], sizes


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
