"""Tiles of output rows with the ranges of inputs that every slot of a row sums up.

What `slot_tiles.tiles` is to neighbour tables, for slots that hold several inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pcnn.geometry.slot_tiles import ordered_section

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

#: Most triplets whose positions int32 holds.
MOST_TRIPLETS = (1 << 31) - 1


def row_lists(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    """Output rows, slots and ranges of inputs of tiles, for sums at the gather.

    Rows and tiles stand in the order of `slot_tiles.tiles`. Inputs lie as in ``rows_csr``: those of
    a row follow each other, slot by slot. A tile lists every slot that one of its rows fills, so a
    row's range in one listed slot ends where that in the next begins: one number for each place
    and listed slot says both. That is 4 (K + 1) bytes a row besides 4 bytes a triplet, as much as a
    neighbour table and half of what pairs (start, end) take. Inputs themselves, padded to the
    largest fan-in F of a tile's slot, would take 4 F K bytes a row, with F up to 8 on scans; counts
    of one byte would take a quarter, but a program could no longer begin at any slot, and dense
    clouds put more than 255 points into one.

    Returns:
        ``tile_out [tiles, TILE_ROWS]`` int32, output row of every place, -1 for a spare one;
        ``tile_slots [tiles, K]`` int32, the slots that some row of the tile fills, in the first
        ``tile_counts [tiles]`` int32 columns (what follows is undefined); ``tile_fan_in [tiles,
        K]`` int32, most inputs that a row of the tile has in the slot of the column;
        ``tile_starts [tiles, K + 1, TILE_ROWS]`` int32: inputs of place p in the slot of column s
        are ``tile_starts[:, s, p]..tile_starts[:, s + 1, p]`` of ``in_index [T]`` int32.

    Raises:
        ValueError: more triplets than int32 counts.
    """
    other, volume = kernel_map.transpose(), kernel_map.volume
    if kernel_map.symmetric and other.has("row_lists"):
        out, slots, *rest = other.layout("row_lists")
        return out, volume - 1 - slots, *rest
    in_index, _, _ = kernel_map.layout("rows_csr")
    if in_index.shape[0] > MOST_TRIPLETS:
        raise ValueError(
            f"{in_index.shape[0]} triplets are more than int32 positions count; use the layout "
            "pairs"
        )
    place = kernel_map.out_index.long() * volume + kernel_map.slot_index  # [T]
    fan_in = in_index.new_zeros(kernel_map.n_out * volume)
    fan_in.index_add_(0, place, torch.ones_like(in_index))
    # rows, and slots within a row, lie one after another: the running sum is where each ends
    starts = in_index.new_zeros(kernel_map.n_out * volume + 1)
    torch.cumsum(fan_in, 0, dtype=torch.int32, out=starts[1:])
    # like a table, negative where a slot is empty
    out, slots, counts = ordered_section(fan_in.view(-1, volume) - 1, 0, 1, volume)
    order = torch.argsort(counts, descending=True, stable=True)
    out, slots, counts = out[order], slots[order], counts[order]
    # behind its last listed slot, a row has ended
    columns = torch.arange(volume + 1, device=slots.device)
    listed = torch.where(
        columns < counts[:, None], torch.nn.functional.pad(slots, (0, 1)), volume
    )  # [tiles, K + 1]
    entries = out.clamp(min=0)[:, None, :] * volume + listed[:, :, None]
    tile_starts = torch.where(out[:, None, :] >= 0, starts[entries], 0)
    tile_fan_in = (tile_starts[:, 1:] - tile_starts[:, :-1]).amax(2)
    small = (tensor.to(torch.int32) for tensor in (out, slots, counts, tile_fan_in))
    return *small, tile_starts, in_index
