"""Gather and scatter in the order of triplets, slot by slot; zeros in the padding of a buffer.

TorchSparse Algorithm 2 and Fig. 9a, weight-stationary: the order that TorchSparse improves upon.
Rows are read again for every slot, and every product is added to its output row in memory, by
atomic additions of float32 (float64 of float64 products), whose order and last bits change from run
to run. Either all slots in one launch, or one slot a launch. Buffers are those of
`pcnn.kernels.gather_scatter`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.product_tiles import power_of_two
from pcnn.kernels.row_tiles import WARPS, tile_shape
from pcnn.kernels.slot_chunks import most_chunks, slot_chunk
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
    x: Tensor,  # [N_in, C], contiguous
    in_index: Tensor,  # [T] int32
    counts: Tensor,  # [K] int64, triplets of every slot
    shifts: Tensor,  # [K] int64
    buffer: Tensor,  # [B, C], contiguous, written; values are rounded to its dtype
    *,
    part: tuple[int, int, int] | None = None,
    skip: int = -1,
    tile: int | None = None,
    vectorised: bool = True,
) -> None:
    """Copy the input row of every triplet to its place in a padded buffer, slot by slot.

    ``buffer[p + shifts[k]] = x[in_index[p]]``. Other rows of the buffer stay as they are. The same
    with ``out_index`` gathers rows of gradients.
    """
    tensors = x, in_index, counts, shifts, buffer
    _launch_slots(_launch_gather_slots, tensors, buffer, part, (skip,), tile, vectorised)


_launch_gather_slots = TritonLauncher(gather_slots_kernel)


@triton.jit(do_not_specialize=["start", "end", "shift"])  # type: ignore[untyped-decorator]
def scatter_slots_kernel(  # type: ignore[no-untyped-def]
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
    products: Tensor,  # [B, C], contiguous
    out_index: Tensor,  # [T] int32
    counts: Tensor,
    shifts: Tensor,
    sums: Tensor,  # [N_out, C] float32 or float64, contiguous, added to
    *,
    part: tuple[int, int, int] | None = None,
    tile: int | None = None,
    vectorised: bool = True,
) -> None:
    """Add the product of every triplet to its output row:
    ``sums[i] += products[p + shifts[k]]``.
    """
    tensors = products, out_index, counts, shifts, sums
    _launch_slots(_launch_scatter_slots, tensors, products, part, (), tile, vectorised)


_launch_scatter_slots = TritonLauncher(scatter_slots_kernel)


def _launch_slots(
    launch: TritonLauncher,
    tensors: tuple[Tensor, ...],
    buffer: Tensor,
    part: tuple[int, int, int] | None,
    skip: tuple[int, ...],
    tile: int | None,
    vectorised: bool,
) -> None:
    """Launch one of the two kernels above; the second tensor lists rows, the third counts them."""
    channels, volume = buffer.shape[1], tensors[2].shape[0]
    tiles, tile, block = tile_shape(channels, tile, buffer.element_size(), vectorised)
    start, end, shift = part or (0, tensors[1].shape[0], 0)
    chunks = triton.cdiv(end - start, block) if part else most_chunks(end, volume, block)
    constants = channels, tile, block, volume, power_of_two(volume), part is None
    launch((chunks * tiles, 1), tensors, (start, end, shift, *skip), constants, WARPS)


@triton.jit(do_not_specialize=["blocks"])  # type: ignore[untyped-decorator]
def clear_padding_kernel(  # type: ignore[no-untyped-def]
    ranges_ptr,  # [K, 2] int64
    buffer_ptr,  # [B, C]
    blocks,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """See `clear_padding`."""
    tiles: tl.constexpr = (CHANNELS + TILE - 1) // TILE
    program = tl.program_id(0)
    slot = program // (blocks * tiles)
    block = program // tiles % blocks
    first = tl.load(ranges_ptr + slot * 2)
    last = tl.load(ranges_ptr + slot * 2 + 1)
    row = first + block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = program % tiles * TILE + tl.arange(0, TILE)
    mask = (row < last)[:, None] & (column < CHANNELS)[None, :]
    zeros = tl.zeros((ROWS, TILE), dtype=buffer_ptr.dtype.element_ty)
    tl.store(buffer_ptr + row[:, None] * CHANNELS + column[None, :], zeros, mask=mask)


def clear_padding(ranges: Tensor, longest: int, buffer: Tensor) -> None:
    """Write zeros to some ranges of rows, in one launch.

    Products of padding are never read, but a reduction over padded rows adds them.
    """
    channels = buffer.shape[1]
    tiles, tile, rows = tile_shape(channels, None, buffer.element_size(), vectorised=True)
    blocks = triton.cdiv(longest, rows)
    grid = (ranges.shape[0] * blocks * tiles, 1)
    _launch_clear(grid, (ranges, buffer), (blocks,), (channels, tile, rows), WARPS)


_launch_clear = TritonLauncher(clear_padding_kernel)
