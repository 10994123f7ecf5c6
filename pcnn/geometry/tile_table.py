"""The neighbour table that row lists of tiles came from.

Tiles name the input of every filled slot of every row, so a map that has them need not keep its
table besides: who asks for it later gets it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

#: Layouts that hold what a table holds (`pcnn.geometry.slot_tiles`).
TILES = ("tiles", "section_tiles")


def has_tiles(kernel_map: KernelMap) -> bool:
    """Whether a side of a map has tiles, so that its table follows from them."""
    return any(kernel_map.has(name) for name in TILES)


def has_table(kernel_map: KernelMap) -> bool:
    """Whether a side's table is there, or follows from its tiles."""
    return kernel_map.has("table") or has_tiles(kernel_map)


def check_source(kernel_map: KernelMap, name: str) -> None:
    """Refuse a side of which nothing can be derived: its layouts would wait for each other.

    Raises:
        ValueError: it holds neither pairs nor a table nor tiles.
    """
    if not (kernel_map.has("pairs") or has_table(kernel_map)):
        raise ValueError(
            f"the layout {name!r} cannot be derived, as the map holds neither pairs nor a table "
            "nor tiles; take a map of a builder, of KernelMap.from_pairs or KernelMap.from_table"
        )


def table_of_tiles(kernel_map: KernelMap) -> Tensor:
    """Neighbour table ``[N_out, K]`` int32 of a side that has tiles: what they were made from.

    Takes 8 bytes for every place of every listed slot while it works.
    """
    name = next(name for name in TILES if kernel_map.has(name))
    tile_out, slots, counts, rows = kernel_map.layout(name)
    n_out, volume = kernel_map.n_out, kernel_map.volume
    listed = torch.arange(slots.shape[1], device=slots.device) < counts[:, None]  # [tiles, W]
    filled = listed[:, :, None] & (rows >= 0)  # [tiles, W, TILE_ROWS]
    entries = tile_out.long()[:, None, :] * volume + slots[:, :, None]
    # what is not filled falls on a spare entry behind the table
    entries = torch.where(filled, entries, n_out * volume)
    table = rows.new_full((n_out * volume + 1,), -1)
    table[entries] = torch.where(filled, rows, -1)
    return table[:-1].view(n_out, volume)
