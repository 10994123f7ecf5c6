"""Tiles of output rows with the ranges of inputs that every slot of a row sums up.

What `slot_tiles.tiles` is to neighbour tables, for slots that hold several inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pcnn.geometry.slot_tiles import GRAY_BITS, TILE_ROWS, gray_order

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

#: Most triplets whose positions int32 holds.
MOST_TRIPLETS = (1 << 31) - 1

#: Inputs of a slot that one step gathers and adds. Three quarters of the slots that native points
#: fill hold one, a fifth two: steps of two are as few as those of a voxel map of the same cloud.
STEP_INPUTS = 2

#: Largest level of a row's fan-in that rows are ordered by; rows without an input have it.
LAST_LEVEL = 31


def row_lists(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    """Output rows, ranges of inputs and steps of tiles, for sums at the gather.

    A tile is ``TILE_ROWS`` places of an order of the rows. A step gathers up to `STEP_INPUTS`
    inputs of one slot for every place of the tile; a slot of which some row has m inputs takes
    ``ceil(m / STEP_INPUTS)`` of them. So rows are ordered by the level of their fan-in first
    (`fan_in_levels`), and by the Gray code of their slot mask within it, as in `slot_tiles.tiles`:
    rows of a tile share slots, and few rows do not prolong the others' sums. Tiles are stored by
    falling number of steps, so that long ones start first; equal ones keep their order.

    Inputs lie as in ``rows_csr``: those of a row follow each other, slot by slot, so where a slot's
    inputs end those of the next begin, and one number for each place and slot says both. That is
    4 (K + 1) bytes a row besides 4 bytes a triplet, as much as a neighbour table; inputs
    themselves, padded to the fullest row of a tile, would take three times that on scans, and
    without bound elsewhere.

    Returns:
        ``tile_out [tiles, TILE_ROWS]`` int32, output row of every place, -1 for a spare one;
        ``tile_starts [tiles, K + 1, TILE_ROWS]`` int32: inputs of place p in slot k are
        ``tile_starts[:, k, p]..tile_starts[:, k + 1, p]`` of ``in_index``;
        ``tile_steps [tiles + 1]`` int32: steps of tile t are ``tile_steps[t]..tile_steps[t + 1]``;
        ``steps [S, 2]`` int32, slot and rank of the first input, by slot, then rank, where
        ``S = most_steps(T, tiles, K)``, and what follows the last step is undefined;
        ``in_index [T]`` int32.

    Raises:
        ValueError: more triplets than int32 counts.
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
    starts = in_index.new_zeros(rows * volume + 1)
    torch.cumsum(fan_in, 0, dtype=torch.int32, out=starts[1:])
    fan_in = fan_in.view(rows, volume)

    tiles = -(-rows // TILE_ROWS)
    key = (fan_in_levels(fan_in) << GRAY_BITS) | gray_order(fan_in > 0)
    order = torch.argsort(key, stable=True)
    out = order.new_full((tiles * TILE_ROWS,), -1)
    out[:rows] = order
    out = out.view(tiles, TILE_ROWS)
    placed = fan_in.new_zeros(tiles * TILE_ROWS, volume)
    placed[:rows] = fan_in[order]
    most = placed.view(tiles, TILE_ROWS, volume).amax(1).to(torch.int64)  # [tiles, K]
    number = (most + (STEP_INPUTS - 1)) // STEP_INPUTS
    longest_first = torch.argsort(number.sum(1), descending=True, stable=True)
    out, number = out[longest_first], number[longest_first]

    slots = torch.arange(volume + 1, device=in_index.device)
    entries = out.clamp(min=0)[:, None, :] * volume + slots[:, None]
    tile_starts = torch.where(out[:, None, :] >= 0, starts[entries], 0)
    tile_steps = torch.nn.functional.pad(number.sum(1).cumsum(0), (1, 0))
    ends = number.flatten().cumsum(0)
    # which of the tiles' slots every step is of: no host sync, where repeating would take one
    places = torch.arange(most_steps(triplets, tiles, volume), device=in_index.device)
    entry = torch.searchsorted(ends, places, right=True).clamp(max=max(0, tiles * volume - 1))
    if tiles * volume:
        rank = (places - ends[entry] + number.flatten()[entry]) * STEP_INPUTS
        steps = torch.stack((entry % volume, rank), dim=1)
    else:
        steps = places.new_zeros(0, 2)
    small = (tensor.to(torch.int32) for tensor in (tile_steps, steps))
    return out.to(torch.int32), tile_starts, *small, in_index


def most_steps(triplets: int, tiles: int, volume: int) -> int:
    """Steps that so many triplets can take at most: ``floor((T + tiles K) / 2)``, and T.

    A slot of a tile whose fullest row has m inputs holds m triplets at least, and takes
    ``ceil(m / 2) <= (m + 1) / 2`` steps.

    Args:
        triplets: number of triplets T.
        tiles: of `TILE_ROWS` rows.
        volume: number of slots K.
    """
    return min(triplets, (triplets + tiles * volume) // STEP_INPUTS)


def check_triplets(triplets: int) -> None:
    """Refuse more triplets than row lists count.

    Raises:
        ValueError: more triplets than int32 counts.
    """
    if triplets > MOST_TRIPLETS:
        raise ValueError(
            f"{triplets} triplets are more than int32 positions count; use the layout pairs"
        )


def fan_in_levels(fan_in: Tensor) -> Tensor:
    """Level of every row: how often its fullest slot's steps can be halved, rounded up.

    Rows whose slots hold at most two inputs have level 0, up to four 1, up to eight 2, ...; rows
    without an input have the last one and stand behind all others.

    Args:
        fan_in: ``[N, K]`` int32, inputs of every slot.

    Returns:
        ``[N]`` int64, 0 to `LAST_LEVEL`.
    """
    most = fan_in.amax(1).to(torch.int64) if fan_in.shape[1] else fan_in.new_zeros(len(fan_in))
    steps = (most + (STEP_INPUTS - 1)) // STEP_INPUTS
    halvings = (2 ** torch.arange(LAST_LEVEL, device=fan_in.device) < steps[:, None]).sum(1)
    return torch.where(most > 0, halvings, LAST_LEVEL)
