"""Tiles of output rows with the ranges of inputs that every slot of a row sums up.

Tiles as those of `slot_tiles.tiles`, for slots that hold several inputs.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pcnn.geometry.gray_order import gray_order
from pcnn.geometry.slot_tiles import TILE_ROWS

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

#: Most triplets whose positions int32 holds.
MOST_TRIPLETS = (1 << 31) - 1

#: Bits of a mask that rows of a level are ordered by (`gray_order`).
OWN_BITS, FOLDED_BITS = 12, 12
GRAY_BITS = OWN_BITS + FOLDED_BITS

#: Steps, 17 MB, that a map may take beyond what large ones take for their triplets.
SPARE_STEPS = 1 << 15

#: Steps whose inputs are looked up at once, to bound memory.
STEPS_AT_ONCE = 1 << 16

#: Level of rows without an input, which stand behind all others.
LAST_LEVEL = 15


def row_lists(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    """Output rows, ranges of inputs and steps of tiles, for output-stationary sums.

    A tile is ``TILE_ROWS`` places of an order of the rows. A step takes one input of one slot to
    every place: a slot of which the fullest row has m inputs takes m steps, the n-th for the rows
    that have n inputs. So rows are ordered by the fan-in of their fullest slot first
    (`fan_in_levels`). Within a level they are ordered by the Gray code of the slots that they fill,
    slots with a second input once more (`pcnn.geometry.gray_order`). Tiles then take some 2.2 to
    2.8 T / TILE_ROWS steps on scans; the order of a neighbour table would take 3.4 to 4.3. Tiles
    are stored by falling number of steps, so that long ones start first; equal ones keep their
    order.

    Inputs lie as in ``rows_csr``: those of a row follow each other, slot by slot, so where a slot's
    inputs end those of the next begin, and one number for each place and slot gives both. Steps are
    listed for all tiles whose steps end within `stored_steps`, as all tiles of scans do. Tiles of
    dense clouds may lie beyond; these are better summed row by row. Ranges and places take 4 (K +
    2) bytes a row, inputs 4 a triplet. Lists of steps take about 8 K bytes a row at most, and of
    millions of rows no more than about 8 a row and 4 (2 + K / 24) a triplet.
    """
    in_index, slot_index, row_offsets = kernel_map.layout("rows_csr")
    check_triplets(in_index.shape[0])
    rows, volume, triplets = kernel_map.n_out, kernel_map.volume, in_index.shape[0]
    # rows, and slots within a row, lie one after another: the running sum is where each ends
    lengths = row_offsets[1:] - row_offsets[:-1]
    row = torch.repeat_interleave(
        torch.arange(rows, device=in_index.device), lengths, output_size=triplets
    )
    fan_in = in_index.new_zeros(rows * volume)
    fan_in.index_add_(0, row * volume + slot_index, torch.ones_like(in_index))
    return lists_of(fan_in.view(rows, volume), in_index)


def lists_of(fan_in: Tensor, in_index: Tensor) -> tuple[Tensor, ...]:
    """`row_lists` of inputs that lie by row, then slot."""
    (rows, volume), triplets = fan_in.shape, in_index.shape[0]
    starts = in_index.new_zeros(rows * volume + 1)
    torch.cumsum(fan_in.flatten(), 0, dtype=torch.int32, out=starts[1:])
    tiles = -(-rows // TILE_ROWS)
    rank = gray_order(torch.cat((fan_in > 0, fan_in > 1), dim=1), OWN_BITS, FOLDED_BITS)
    order = torch.argsort((fan_in_levels(fan_in) << GRAY_BITS) | rank, stable=True)
    out = order.new_full((tiles * TILE_ROWS,), -1)
    out[:rows] = order
    out = out.view(tiles, TILE_ROWS)
    placed = fan_in.new_zeros(tiles * TILE_ROWS, volume)
    placed[:rows] = fan_in[order]
    most = placed.view(tiles, TILE_ROWS, volume).amax(1).to(torch.int64)  # [tiles, K]
    longest_first = torch.argsort(most.sum(1), descending=True, stable=True)
    out, most = out[longest_first], most[longest_first]

    slots = torch.arange(volume + 1, device=in_index.device)
    entries = out.clamp(min=0)[:, None, :] * volume + slots[:, None]
    tile_starts = torch.where(out[:, None, :] >= 0, starts[entries], 0)
    tile_steps = torch.nn.functional.pad(most.sum(1).cumsum(0), (1, 0)).to(torch.int32)
    steps = _steps(most, tile_starts, in_index, stored_steps(triplets, tiles, volume))
    return out.to(torch.int32), tile_starts, tile_steps, *steps, in_index


def _steps(most: Tensor, tile_starts: Tensor, in_index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Slots ``[S]`` and inputs ``[S, TILE_ROWS]``, int32, of the first S of ``most`` steps."""
    if not size:
        return in_index.new_zeros(0), in_index.new_zeros(0, TILE_ROWS)
    slots, listed = in_index.new_empty(size), in_index.new_empty(size, TILE_ROWS)
    ends = most.flatten().cumsum(0)
    for first in range(0, size, STEPS_AT_ONCE):
        places = torch.arange(first, min(size, first + STEPS_AT_ONCE), device=most.device)
        # which of the tiles' slots every step is of: no host sync, where repeating would take one
        entry = torch.searchsorted(ends, places, right=True).clamp(max=most.numel() - 1)
        rank = places - ends[entry] + most.flatten()[entry]
        tile = torch.div(entry, most.shape[1], rounding_mode="floor")
        slot = entry - tile * most.shape[1]
        inputs = tile_starts[tile, slot] + rank[:, None]
        there = inputs < tile_starts[tile, slot + 1]
        slots[places] = slot.to(torch.int32)
        listed[places] = torch.where(there, in_index[torch.where(there, inputs, 0)], -1)
    return slots, listed


def pairs_of_lists(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    """Layout ``pairs`` from the ``row_lists`` of the map that is not flipped."""
    tile_out, tile_starts, *_, inputs = kernel_map.layout("row_lists")
    offsets, device = kernel_map.offsets, inputs.device
    place = torch.argsort(torch.where(tile_out < 0, kernel_map.n_out, tile_out).flatten())
    place = place[: kernel_map.n_out]
    tile, column = torch.div(place, TILE_ROWS, rounding_mode="floor"), place % TILE_ROWS
    rows = torch.arange(kernel_map.n_out, dtype=torch.int32, device=device)
    in_index, out_index = torch.empty(2, len(inputs), dtype=torch.int32, device=device).unbind()
    for slot, (first, last) in enumerate(itertools.pairwise(offsets.tolist())):
        begin = tile_starts[tile, slot, column]
        sizes = tile_starts[tile, slot + 1, column] - begin  # [N_out]
        shift = begin - (sizes.cumsum(0, dtype=torch.int32) - sizes)
        size = last - first
        at = torch.repeat_interleave(shift, sizes, output_size=size)
        at += torch.arange(size, dtype=torch.int32, device=device)
        in_index[first:last] = inputs[at]
        out_index[first:last] = torch.repeat_interleave(rows, sizes, output_size=size)
    return in_index, out_index, offsets


def stored_steps(triplets: int, tiles: int, volume: int) -> int:
    """Steps that there is room for, known before any is counted: nothing waits for the device.

    The least of

    * T, as a step takes one triplet at least;
    * two for every slot of a tile: what needs more is better summed row by row;
    * ``(2 + K / 24) T / TILE_ROWS``, two a tile and `SPARE_STEPS`, which scans stay below. The more
      slots, the less do rows of a tile have the same ones filled. Of 0.2 to 4 million points of
      rooms and LiDAR, all steps are 1.7 to 2.5 T / TILE_ROWS at K = 27 and 4.1 to 6.2 at K = 125
      (8.1 of a quarter of the LiDAR points). Of fewer points they are more: up to 13 T / TILE_ROWS
      of a few thousand, which the spare steps hold.
    """
    usual = (48 + volume) * triplets // (24 * TILE_ROWS) + 2 * tiles + SPARE_STEPS
    return min(triplets, 2 * tiles * volume, usual)


def check_triplets(triplets: int) -> None:
    """Refuse more triplets than row lists count."""
    if triplets > MOST_TRIPLETS:
        raise ValueError(
            f"{triplets} triplets are more than int32 positions count; use the layout pairs"
        )


def fan_in_levels(fan_in: Tensor) -> Tensor:
    """Level of every row: inputs of its fullest slot up to 4, then powers of two.

    Five to eight inputs are level 5, up to sixteen 6, ..., at most 14; rows without an input have
    the last level.
    """
    rows, volume = fan_in.shape
    most = fan_in.amax(1).to(torch.int64) if volume else fan_in.new_zeros(rows, dtype=torch.int64)
    powers = 2 ** torch.arange(2, LAST_LEVEL, device=fan_in.device)  # 4, 8, 16, ...
    levels = most.clamp(max=4) + (most[:, None] > powers).sum(1)
    return torch.where(most > 0, levels.clamp(max=LAST_LEVEL - 1), LAST_LEVEL)
