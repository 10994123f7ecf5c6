"""Tiles of output rows that share kernel slots, with the input rows that every slot gathers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pcnn.geometry.gray_order import gray_order

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

#: Layouts that hold what a table holds: they name the input of every filled slot of every row.
TILES = ("tiles", "section_tiles", "fitting_tiles")

#: Output rows of a tile.
TILE_ROWS = 128

#: Bits of a mask that rows are ordered by (`gray_order`): with the number of one of 32 maps they
#: are three digits of a radix sort.
OWN_BITS, FOLDED_BITS = 9, 10
GRAY_BITS = OWN_BITS + FOLDED_BITS

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


def tiles(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    """Output rows, slots and gathered input rows of tiles, for implicit GEMM.

    Rows are ordered by the Gray code of their slot mask (`pcnn.geometry.gray_order`), so that the
    rows of a tile share slots; rows without a slot stand last. A tile is ``TILE_ROWS`` places of
    that order. Tiles are stored by falling number of slots, so that long ones start first; equal
    ones keep their order.
    """
    return _mirrored(kernel_map, "tiles") or tiles_of_table(kernel_map.layout("table")[0])


def section_tiles(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    """Tiles of every plane of slots with one z, each with a row order of its own.

    On sparse clouds a row fills few slots of a large kernel, and tiles of all slots are mostly
    padding; within a plane the rows are more similar. With S planes, plane g holds the slots
    ``g, g + S, ...``; only rows that fill one of them stand in its order.
    """
    sections = sections_of(kernel_map)
    if sections == 1:
        return kernel_map.layout("tiles")
    found = _mirrored(kernel_map, "section_tiles")
    return found or tiles_of_table(kernel_map.layout("table")[0], sections)


def fitting_tiles(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    """`section_tiles` of large kernels on sparse clouds (see `is_sparse`), else `tiles`."""
    cut = may_be_cut(kernel_map) and is_sparse(kernel_map, int(kernel_map.offsets[-1]))
    return kernel_map.layout("section_tiles" if cut else "tiles")


def may_be_cut(kernel_map: KernelMap) -> bool:
    """True if the number of triplets decides about a map's sections."""
    return kernel_map.volume > WHOLE_SLOTS and sections_of(kernel_map) > 1


def is_sparse(kernel_map: KernelMap, triplets: int) -> bool:
    """True if the rows of a map with so many triplets fill few of its slots, but not too few.

    Sections meet in float32 sums. Of many rows those do not stay in the cache, and rows that fill
    next to nothing save less than that costs.
    """
    rows = kernel_map.n_out
    many = rows > CACHED_ROWS and triplets < FEW_SLOTS * rows
    return triplets < SPARSE * kernel_map.volume * rows and not many


def sections_of(kernel_map: KernelMap) -> int:
    """Number of sections of a map's `section_tiles`: the kernel's size along z, at most 32."""
    for view in (kernel_map, kernel_map.transpose()):
        if view.has("kernel_size"):
            planes = int(view.layout("kernel_size")[0][2])  # on the host
            return planes if planes <= MAX_SECTIONS else 1
    return 1


def kernel_size(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    """``[3]`` int64 on the host: slots of the kernel along x, y and z; z is the fastest."""
    other = kernel_map.transpose()
    if other.has("kernel_size"):
        return other.layout("kernel_size")
    raise ValueError(
        "this kernel map does not know the size of its kernel; build it through VoxelGrid.map_to"
    )


def _mirrored(kernel_map: KernelMap, name: str) -> tuple[Tensor, ...] | None:
    """Tiles of the transpose of a symmetric map: the same rows, slots mirrored."""
    other = kernel_map.transpose()
    if not (kernel_map.symmetric and other.has(name)):
        return None
    out, slots, counts, rows = other.layout(name)
    return out, kernel_map.volume - 1 - slots, counts, rows


def tiles_of_table(table: Tensor, sections: int = 1) -> tuple[Tensor, ...]:
    """Tiles of a neighbour table ``[N_out, K]``; see `tiles` and `section_tiles`."""
    width = -(-table.shape[1] // sections)
    parts = [ordered_section(table, number, sections, width) for number in range(sections)]
    out, slots, counts = (torch.cat(column) for column in zip(*parts, strict=True))
    order = torch.argsort(counts, descending=True, stable=True)
    out, slots, counts = out[order], slots[order], counts[order]
    # [tiles, W, TILE_ROWS]: the table's entry at (row of the place, slot of the column)
    entries = out.clamp(min=0)[:, None, :] * table.shape[1] + slots[:, :, None]
    rows = torch.where(out[:, None, :] >= 0, table.reshape(-1)[entries], -1)
    return out.to(torch.int32), slots.to(torch.int32), counts.to(torch.int32), rows


def ordered_section(table: Tensor, number: int, sections: int, width: int) -> tuple[Tensor, ...]:
    """Output rows, slots and counts, int64, of the tiles of one section in their own order."""
    occupied = table[:, number::sections] >= 0  # [N, slots of the section]
    rows, volume = occupied.shape
    filled = occupied.any(1)
    # rows without a slot stand behind all others
    rank = gray_order(occupied, OWN_BITS, FOLDED_BITS)
    order = torch.argsort(torch.where(filled, rank, 1 << GRAY_BITS), stable=True)
    tiles = -(-rows // TILE_ROWS)
    out = order.new_full((tiles * TILE_ROWS,), -1)
    out[:rows] = order if sections == 1 else torch.where(filled[order], order, -1)
    touched = occupied.new_zeros(tiles * TILE_ROWS, volume)
    touched[:rows] = occupied[order]
    touched = touched.view(tiles, TILE_ROWS, volume).any(1)
    first = torch.argsort((~touched).to(torch.int8), dim=1, stable=True)  # filled ones first
    slots = torch.nn.functional.pad(first * sections + number, (0, width - volume))
    return out.view(tiles, TILE_ROWS), slots, touched.sum(1)


def has_tiles(kernel_map: KernelMap) -> bool:
    """True if a side of a map has tiles, so that its table follows from them."""
    return any(kernel_map.has(name) for name in TILES)


def has_table(kernel_map: KernelMap) -> bool:
    """True if a side's table is there, or follows from its tiles."""
    return kernel_map.has("table") or has_tiles(kernel_map)


def check_source(kernel_map: KernelMap, name: str) -> None:
    """Refuse a side of which nothing can be derived: its layouts would wait for each other."""
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
