"""Memory layouts of a kernel map, derived from its pairs.

Every function takes the map's fields and returns the tensors of one layout, in the order in which a
dataflow receives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

Layout = tuple[Tensor, ...]

#: Largest neighbour table that is built, in bytes; beyond it only the other layouts serve.
TABLE_BUDGET_BYTES = 4 << 30

#: Output rows of a block on a CPU; elsewhere one block holds all rows.
BLOCK_ROWS = 4096

#: Output rows of a tile of the ``tiles`` layout.
TILE_ROWS = 64

#: Bits of a mask word: one less than an int32 has, so that no mask is negative.
MASK_BITS = 31


def pairs(kernel_map: KernelMap) -> Layout:
    """``in_index [T]``, ``out_index [T]`` int32 by slot, ``offsets [K + 1]`` int64 on the host."""
    return kernel_map.in_index, kernel_map.out_index, kernel_map.offsets


def table(kernel_map: KernelMap) -> Layout:
    """Neighbour table ``[N_out, K]`` int32: input row of every slot, -1 where it is empty.

    Raises:
        ValueError: a slot may hold several inputs, or the table exceeds the memory budget.
    """
    rows, volume = kernel_map.n_out, kernel_map.volume
    if not kernel_map.one_per_slot:
        raise ValueError(
            "this kernel map has slots with several inputs, so it has no neighbour table; use the "
            "layouts pairs or rows_csr"
        )
    size = 4 * rows * volume
    if size > TABLE_BUDGET_BYTES:
        raise ValueError(
            f"a neighbour table of {rows} rows x {volume} slots takes {size} bytes, over the "
            f"budget of {TABLE_BUDGET_BYTES}; use the layout pairs"
        )
    neighbours = kernel_map.in_index.new_full((rows * volume,), -1)
    neighbours[kernel_map.out_index.long() * volume + kernel_map.slot_index] = kernel_map.in_index
    return (neighbours.view(rows, volume),)


def rows_csr(kernel_map: KernelMap) -> Layout:
    """Triplets by output row, then slot: ``in_index``, ``slot_index`` int32, ``row_offsets``.

    ``row_offsets [N_out + 1]`` int64: triplets of output row i are ``row_offsets[i]..[i + 1]``.
    """
    # stable: triplets are sorted by slot already, so within a row slots stay ascending
    order = torch.argsort(kernel_map.out_index, stable=True)
    slots = kernel_map.slot_index[order].to(torch.int32)
    return kernel_map.in_index[order], slots, _offsets(kernel_map.out_index, kernel_map.n_out)


def blocks(kernel_map: KernelMap) -> Layout:
    """Triplets by block of output rows, then slot, and how each row sums its products.

    Returns:
        ``in_index [T]``, ``out_index [T]`` int32 in that order; ``by_row [T]`` int32, positions of
        the triplets sorted by output row; ``row_offsets [N_out + 1]`` int64 into ``by_row``; on the
        host ``segments [S, 4]`` int64 (block, slot, first and one-past-last triplet) and
        ``shape [2]`` int64 (K, rows of a block).
    """
    volume, n_out = kernel_map.volume, kernel_map.n_out
    rows = BLOCK_ROWS if kernel_map.in_index.device.type == "cpu" else max(1, n_out)
    block = torch.div(kernel_map.out_index, rows, rounding_mode="floor")
    place = block * volume + kernel_map.slot_index  # block-major, slot-minor
    order = torch.argsort(place, stable=True)
    counts = torch.bincount(place, minlength=-(-n_out // rows) * volume).cpu()
    ends = torch.cumsum(counts, 0)
    number = torch.arange(counts.shape[0])
    fields = (number // volume, number % volume, ends - counts, ends)
    segments = torch.stack(fields, dim=1)[counts > 0]
    out_index = kernel_map.out_index[order]
    by_row = torch.argsort(out_index, stable=True).to(torch.int32)
    shape = torch.tensor([volume, rows])
    in_index = kernel_map.in_index[order]
    return in_index, out_index, by_row, _offsets(out_index, n_out), segments, shape


def mirrored_blocks(layout: Layout) -> Layout:
    """Blocks of the transpose of a symmetric map, from the map's own.

    ``(i, j, k)`` and ``(j, i, K - 1 - k)`` are both triplets, so only the slots change their names.
    """
    *tensors, segments, shape = layout
    mirrored = segments.clone()
    mirrored[:, 1] = shape[0] - 1 - segments[:, 1]
    return *tensors, mirrored, shape


def tiles(kernel_map: KernelMap) -> Layout:
    """Row order and slot lists for implicit GEMM over the neighbour table.

    Rows are ordered by the Gray code of their slot mask, so that the rows of a tile share slots.

    Returns:
        ``order [N_out]`` int64; ``masks [N_out, ceil(K / 31)]`` int32, bit k of word k // 31 set
        where slot k is filled, in the order of the rows; ``slots [S]`` int32, the slots each tile
        touches; ``tile_offsets [tiles + 1]`` int64 into ``slots``.
    """
    occupied = kernel_map.layout("table")[0] >= 0  # [N_out, K]
    masks = torch.stack([_bits(words) for words in torch.split(occupied, MASK_BITS, 1)], dim=1)
    order = torch.arange(kernel_map.n_out, device=masks.device)
    for word in reversed(masks.unbind(1)):  # least significant word first: a radix sort
        order = order[torch.argsort(_gray_rank(word)[order], stable=True)]
    tile = torch.arange(kernel_map.n_out, device=masks.device) // TILE_ROWS
    count = -(-kernel_map.n_out // TILE_ROWS)
    touched = torch.zeros(count, kernel_map.volume, dtype=torch.int64, device=masks.device)
    touched.index_add_(0, tile, occupied[order].to(torch.int64))
    of_tile, slots = touched.nonzero(as_tuple=True)
    return order, masks.to(torch.int32), slots.to(torch.int32), _offsets(of_tile, count)


def _offsets(index: Tensor, rows: int) -> Tensor:
    """Start of every row's run in a list sorted by row, from the unsorted row indices."""
    counts = torch.bincount(index, minlength=rows)
    offsets = counts.new_zeros(rows + 1)
    torch.cumsum(counts, 0, out=offsets[1:])
    return offsets


def _bits(occupied: Tensor) -> Tensor:
    """Bitmask ``[N]`` int64 of boolean columns, column 0 in the lowest bit."""
    weights = 2 ** torch.arange(occupied.shape[1], device=occupied.device)
    return (occupied.to(torch.int64) * weights).sum(1)


def _gray_rank(mask: Tensor) -> Tensor:
    """Position of a mask in the Gray code order: neighbours in this order differ in few slots."""
    rank = mask.clone()
    for shift in (1, 2, 4, 8, 16):
        rank ^= rank >> shift
    return rank


#: Layouts by the name a dataflow asks for.
LAYOUTS: dict[str, Callable[[KernelMap], Layout]] = {
    "pairs": pairs,
    "table": table,
    "rows_csr": rows_csr,
    "blocks": blocks,
    "tiles": tiles,
}
