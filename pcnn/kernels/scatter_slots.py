"""Scatter in the order of the triplets, slot by slot: the order that TorchSparse improves upon.

TorchSparse Algorithm 2 and Fig. 9a, weight-stationary: every product is added to its output row in
memory, by atomic additions of float32 (float64 of float64 products). Their order changes from run
to run, and with it the last bits. Either all slots in one launch, or one slot a launch.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.row_tiles import WARPS, tile_shape
from pcnn.kernels.slot_chunks import most_chunks, power_of_two, slot_chunk
from pcnn.kernels.triton_launch import TritonLauncher


@triton.jit(do_not_specialize=["start", "end", "shift"])  # type: ignore[untyped-decorator]
def scatter_slots_kernel(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    products_ptr,  # [B, C]
    out_index_ptr,  # [T] int32
    counts_ptr,  # [K] int64
    shifts_ptr,  # [K] int64
    sums_ptr,  # [N_out, C] float32 or float64
    start,
    end,
    shift,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
    VOLUME: tl.constexpr,
    SLOTS: tl.constexpr,
    FUSED: tl.constexpr,
):
    """See `scatter_slots`."""
    tiles: tl.constexpr = (CHANNELS + TILE - 1) // TILE
    program = tl.program_id(0)
    chunk = program // tiles
    if FUSED:
        slot, first, last = slot_chunk(chunk, counts_ptr, ROWS, VOLUME, SLOTS)
        if first == last:
            return
        shift = tl.load(shifts_ptr + slot)
    else:
        first = start + chunk.to(tl.int64) * ROWS
        last = tl.minimum(end, first + ROWS)
    position = first + tl.arange(0, ROWS)
    column = program % tiles * TILE + tl.arange(0, TILE)
    mask = (position < last)[:, None] & (column < CHANNELS)[None, :]
    row = tl.load(out_index_ptr + position, mask=position < last, other=0).to(tl.int64)
    place = (position + shift)[:, None] * CHANNELS + column[None, :]
    values = tl.load(products_ptr + place, mask=mask, other=0).to(sums_ptr.dtype.element_ty)
    target = sums_ptr + row[:, None] * CHANNELS + column[None, :]
    tl.atomic_add(target, values, mask=mask, sem="relaxed")


def scatter_slots(
    products: Tensor,
    out_index: Tensor,
    counts: Tensor,
    shifts: Tensor,
    sums: Tensor,
    *,
    part: tuple[int, int, int] | None = None,
    tile: int | None = None,
    vectorised: bool = True,
) -> None:
    """Add the product of every triplet to its output row: ``sums[i] += products[p + shifts[k]]``.

    Args:
        products: ``[B, C]``, contiguous.
        out_index: ``[T]`` int32.
        counts: ``[K]`` int64, triplets of every slot.
        shifts: ``[K]`` int64.
        sums: ``[N_out, C]`` float32 or float64, contiguous, added to.
        part: first and one-past-last triplet and shift of a slot that is scattered alone; ``None``
            scatters all slots in one launch.
        tile: channels of a program, a power of two (`row_tiles.tiles_of`); ``None`` for whole rows.
        vectorised: whether threads read 16 bytes at once, or one channel.
    """
    channels, volume = products.shape[1], counts.shape[0]
    tiles, tile, block = tile_shape(channels, tile, products.element_size(), vectorised)
    start, end, shift = part or (0, out_index.shape[0], 0)
    chunks = triton.cdiv(end - start, block) if part else most_chunks(end, volume, block)
    _launch_scatter_slots(
        (chunks * tiles, 1),
        (products, out_index, counts, shifts, sums),
        (start, end, shift),
        (channels, tile, block, volume, power_of_two(volume), part is None),
        WARPS,
    )


_launch_scatter_slots = TritonLauncher(scatter_slots_kernel)
