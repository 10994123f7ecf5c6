"""Gather in the order of the triplets, slot by slot: the order that TorchSparse improves upon.

TorchSparse Algorithm 2 and Fig. 9a, weight-stationary: every input row of a slot is another one, so
rows are read anew for every slot. Either all slots in one launch, or one slot a launch.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.row_tiles import WARPS, tile_shape
from pcnn.kernels.slot_chunks import most_chunks, power_of_two, slot_chunk
from pcnn.kernels.triton_launch import TritonLauncher


@triton.jit(do_not_specialize=["start", "end", "shift", "skip"])  # type: ignore[untyped-decorator]
def gather_slots_kernel(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    x_ptr,  # [N_in, C]
    in_index_ptr,  # [T] int32
    counts_ptr,  # [K] int64
    shifts_ptr,  # [K] int64
    buffer_ptr,  # [B, C]
    start,
    end,
    shift,
    skip,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
    VOLUME: tl.constexpr,
    SLOTS: tl.constexpr,
    FUSED: tl.constexpr,
):
    """See `gather_slots`."""
    tiles: tl.constexpr = (CHANNELS + TILE - 1) // TILE
    program = tl.program_id(0)
    chunk = program // tiles
    if FUSED:
        slot, first, last = slot_chunk(chunk, counts_ptr, ROWS, VOLUME, SLOTS)
        if first == last:
            return
        if slot == skip:
            return
        shift = tl.load(shifts_ptr + slot)
    else:
        first = start + chunk.to(tl.int64) * ROWS
        last = tl.minimum(end, first + ROWS)
    position = first + tl.arange(0, ROWS)
    column = program % tiles * TILE + tl.arange(0, TILE)
    mask = (position < last)[:, None] & (column < CHANNELS)[None, :]
    row = tl.load(in_index_ptr + position, mask=position < last, other=0).to(tl.int64)
    values = tl.load(x_ptr + row[:, None] * CHANNELS + column[None, :], mask=mask, other=0)
    place = (position + shift)[:, None] * CHANNELS + column[None, :]
    tl.store(buffer_ptr + place, values.to(buffer_ptr.dtype.element_ty), mask=mask)


def gather_slots(
    x: Tensor,
    in_index: Tensor,
    counts: Tensor,
    shifts: Tensor,
    buffer: Tensor,
    *,
    part: tuple[int, int, int] | None = None,
    skip: int = -1,
    tile: int | None = None,
    vectorised: bool = True,
) -> None:
    """Copy the input row of every triplet to its place in a padded buffer, slot by slot.

    ``buffer[p + shifts[k]] = x[in_index[p]]``. Other rows of the buffer stay as they are. The same
    with ``out_index`` gathers rows of gradients.

    Args:
        x: ``[N_in, C]``, contiguous.
        in_index: ``[T]`` int32.
        counts: ``[K]`` int64, triplets of every slot.
        shifts: ``[K]`` int64.
        buffer: ``[B, C]``, contiguous, written; values are rounded to its dtype.
        part: first and one-past-last triplet and shift of a slot that is gathered alone; ``None``
            gathers all slots in one launch.
        skip: a slot that is not gathered with the others, -1 if all are.
        tile: channels of a program, a power of two (`row_tiles.tiles_of`); ``None`` for whole rows.
        vectorised: whether threads move 16 bytes at once, or one channel.
    """
    channels, volume = x.shape[1], counts.shape[0]
    tiles, tile, block = tile_shape(channels, tile, buffer.element_size(), vectorised)
    start, end, shift = part or (0, in_index.shape[0], 0)
    chunks = triton.cdiv(end - start, block) if part else most_chunks(end, volume, block)
    _launch_gather_slots(
        (chunks * tiles, 1),
        (x, in_index, counts, shifts, buffer),
        (start, end, shift, skip),
        (channels, tile, block, volume, power_of_two(volume), part is None),
        WARPS,
    )


_launch_gather_slots = TritonLauncher(gather_slots_kernel)
