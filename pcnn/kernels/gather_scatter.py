"""Gather and scatter, all slots in one launch: in the order of rows, or in that of slots.

In the order of rows (TorchSparse section 4.3.2, Fig. 9b) a program of the gather writes rows that
it holds to the buffer rows of all their triplets, and one of the scatter sums the products of its
rows, in float32 in the order of the slots: no atomics, identical bits. In the order of slots (Fig.
9a) rows are read again for every slot, and products are added by atomics. Programs split channels
by a tile that Minuet (section 5.2.1) tunes.

A padded buffer holds the rows of every slot in the order of ``pairs``; the triplet at position p of
``pairs`` has row ``p + shifts[slot]``.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.conv_spec import NO_EPILOGUE, Epilogue
from pcnn.kernels.epilogue import with_epilogue
from pcnn.kernels.gathered_product import most_chunks, slot_chunk
from pcnn.kernels.product_tiles import WARPS, power_of_two, tile_shape
from pcnn.kernels.triton_launch import TritonLauncher


@triton.jit
def buffer_rows(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    entry, last, position_ptr, slot_ptr, shifts_ptr, skip
):
    """Buffer rows of some triplets, -1 for those that have none."""
    exists = entry < last
    position = tl.load(position_ptr + entry, mask=exists, other=0)
    slot = tl.load(slot_ptr + entry, mask=exists, other=0).to(tl.int32)
    row = position + tl.load(shifts_ptr + slot, mask=exists, other=0)
    return tl.where(exists & (slot != skip), row, -1)


@triton.jit(do_not_specialize=["rows", "skip"])  # type: ignore[untyped-decorator]
def gather_kernel(  # type: ignore[no-untyped-def]
    x_ptr,  # [N_in, C]
    position_ptr,  # [T] int32
    slot_ptr,  # [T] int16
    offsets_ptr,  # [N_in + 1] int64
    shifts_ptr,  # [K] int64
    buffer_ptr,  # [B, C]
    rows,
    skip,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """See `gather`."""
    tiles: tl.constexpr = (CHANNELS + TILE - 1) // TILE
    program = tl.program_id(0).to(tl.int64)  # tiles of a row are neighbours: they share look-ups
    row = program // tiles * ROWS + tl.arange(0, ROWS)
    column = (program % tiles).to(tl.int32) * TILE + tl.arange(0, TILE)
    exists = row < rows
    inside = column < CHANNELS
    entry = tl.load(offsets_ptr + row, mask=exists, other=0)
    last = tl.load(offsets_ptr + row + 1, mask=exists, other=0)
    place = row[:, None] * CHANNELS + column[None, :]
    values = tl.load(x_ptr + place, mask=exists[:, None] & inside[None, :], other=0)
    values = values.to(buffer_ptr.dtype.element_ty)
    # four triplets a turn: their look-ups overlap
    turns = (tl.max(last - entry, 0) + 3) // 4
    for _ in range(turns):
        row_0 = buffer_rows(entry, last, position_ptr, slot_ptr, shifts_ptr, skip)
        row_1 = buffer_rows(entry + 1, last, position_ptr, slot_ptr, shifts_ptr, skip)
        row_2 = buffer_rows(entry + 2, last, position_ptr, slot_ptr, shifts_ptr, skip)
        row_3 = buffer_rows(entry + 3, last, position_ptr, slot_ptr, shifts_ptr, skip)
        write_rows(buffer_ptr, row_0, column, inside, values, CHANNELS)
        write_rows(buffer_ptr, row_1, column, inside, values, CHANNELS)
        write_rows(buffer_ptr, row_2, column, inside, values, CHANNELS)
        write_rows(buffer_ptr, row_3, column, inside, values, CHANNELS)
        entry += 4


@triton.jit  # type: ignore[untyped-decorator]
def write_rows(  # type: ignore[no-untyped-def]
    buffer_ptr, row, column, inside, values, CHANNELS: tl.constexpr
):
    """Write ``values [R, TILE]`` to the buffer rows ``row [R]`` that are not negative."""
    place = row[:, None] * CHANNELS + column[None, :]
    tl.store(buffer_ptr + place, values, mask=(row >= 0)[:, None] & inside[None, :])


def gather(
    x: Tensor,  # [N_in, C], contiguous
    by_in: Sequence[Tensor],
    shifts: Tensor,  # [K] int64
    buffer: Tensor,  # [B, C], contiguous, written; values are rounded to its dtype
    skip: int = -1,
    tile: int | None = None,
) -> None:
    """Copy the input row of every triplet to its place in a padded buffer, in one launch.

    ``buffer[p + shifts[k]] = x[j]`` for the triplet (i, j, k) at position p of ``pairs``. Other
    rows of the buffer stay as they are. The same with ``by_out`` gathers rows of gradients.
    """
    rows, channels = x.shape
    position, slot, offsets = by_in
    if not position.shape[0]:
        return
    tiles, tile, block = tile_shape(channels, tile, buffer.element_size())
    _launch_gather(
        (triton.cdiv(rows, block) * tiles, 1),
        (x, position, slot, offsets, shifts, buffer),
        (rows, skip),
        (channels, tile, block),
        WARPS,
    )


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def scatter_kernel(  # type: ignore[no-untyped-def]
    products_ptr,  # [B, C]
    position_ptr,  # [T] int32
    slot_ptr,  # [T] int16
    offsets_ptr,  # [N_out + 1] int64
    shifts_ptr,  # [K] int64
    out_ptr,  # [N_out, C]
    scale_ptr,  # [C] or None
    shift_ptr,  # [C] or None
    residual_ptr,  # [N_out, C] or None
    rows,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
    RELU: tl.constexpr,
):
    """See `scatter`."""
    tiles: tl.constexpr = (CHANNELS + TILE - 1) // TILE
    program = tl.program_id(0).to(tl.int64)
    row = program // tiles * ROWS + tl.arange(0, ROWS)
    column = (program % tiles).to(tl.int32) * TILE + tl.arange(0, TILE)
    exists = row < rows
    inside = column < CHANNELS
    entry = tl.load(offsets_ptr + row, mask=exists, other=0)
    last = tl.load(offsets_ptr + row + 1, mask=exists, other=0)
    sums = tl.zeros((ROWS, TILE), dtype=tl.float32)
    # four triplets a turn: their look-ups and loads overlap, additions keep their order
    turns = (tl.max(last - entry, 0) + 3) // 4
    for _ in range(turns):
        row_0 = buffer_rows(entry, last, position_ptr, slot_ptr, shifts_ptr, -1)
        row_1 = buffer_rows(entry + 1, last, position_ptr, slot_ptr, shifts_ptr, -1)
        row_2 = buffer_rows(entry + 2, last, position_ptr, slot_ptr, shifts_ptr, -1)
        row_3 = buffer_rows(entry + 3, last, position_ptr, slot_ptr, shifts_ptr, -1)
        term_0 = read_rows(products_ptr, row_0, column, inside, CHANNELS)
        term_1 = read_rows(products_ptr, row_1, column, inside, CHANNELS)
        term_2 = read_rows(products_ptr, row_2, column, inside, CHANNELS)
        term_3 = read_rows(products_ptr, row_3, column, inside, CHANNELS)
        sums += term_0.to(tl.float32)
        sums += term_1.to(tl.float32)
        sums += term_2.to(tl.float32)
        sums += term_3.to(tl.float32)
        entry += 4
    place = row[:, None] * CHANNELS + column[None, :]
    shown = inside[None, :]
    there = exists[:, None] & shown
    sums = with_epilogue(
        sums, place, column[None, :], shown, there, scale_ptr, shift_ptr, residual_ptr, RELU
    )
    tl.store(out_ptr + place, sums.to(out_ptr.dtype.element_ty), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def read_rows(  # type: ignore[no-untyped-def]
    products_ptr, row, column, inside, CHANNELS: tl.constexpr
):
    """Buffer rows ``row [R]`` as ``[R, TILE]``, zeros for negative ones."""
    place = row[:, None] * CHANNELS + column[None, :]
    return tl.load(products_ptr + place, mask=(row >= 0)[:, None] & inside[None, :], other=0)


def scatter(
    products: Tensor,  # [B, C], contiguous
    by_out: Sequence[Tensor],
    shifts: Tensor,  # [K] int64
    out: Tensor,  # [N_out, C], contiguous, every row of it written, rounded to its dtype
    epilogue: Epilogue | None = None,
    tile: int | None = None,
) -> None:
    """Sum the products of every output row, in one launch.

    ``out[i] = sum over (i, j, k) of products[p + shifts[k]]``, p the triplet's position in
    ``pairs``, and what follows the sums.
    """
    rows, channels = out.shape
    if not rows:
        return
    position, slot, offsets = by_out
    tiles, tile, block = tile_shape(channels, tile, products.element_size())
    scale, shift, residual, relu = epilogue or NO_EPILOGUE
    residual = None if residual is None else residual.contiguous()
    _launch_scatter(
        (triton.cdiv(rows, block) * tiles, 1),
        (products, position, slot, offsets, shifts, out, scale, shift, residual),
        (rows,),
        (channels, tile, block, relu),
        WARPS,
    )


@triton.jit(do_not_specialize=["skip"])  # type: ignore[untyped-decorator]
def slots_kernel(  # type: ignore[no-untyped-def]
    source_ptr,  # [N_in, C], or the buffer [B, C]
    index_ptr,  # [T] int32
    counts_ptr,  # [K] int64
    shifts_ptr,  # [K] int64
    target_ptr,  # the buffer, or sums [N_out, C] float32
    skip,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
    VOLUME: tl.constexpr,
    SLOTS: tl.constexpr,
    SCATTER: tl.constexpr,
):
    """Some triplets of one slot; see `move_slots`."""
    tiles: tl.constexpr = (CHANNELS + TILE - 1) // TILE
    program = tl.program_id(0)
    slot, first, last = slot_chunk(program // tiles, counts_ptr, ROWS, VOLUME, SLOTS)
    if first == last:
        return
    if slot == skip:
        return
    position = first + tl.arange(0, ROWS)
    column = program % tiles * TILE + tl.arange(0, TILE)
    mask = (position < last)[:, None] & (column < CHANNELS)[None, :]
    row = tl.load(index_ptr + position, mask=position < last, other=0).to(tl.int64)
    place = position + tl.load(shifts_ptr + slot)
    origin = place if SCATTER else row
    values = tl.load(source_ptr + origin[:, None] * CHANNELS + column[None, :], mask=mask, other=0)
    values = values.to(target_ptr.dtype.element_ty)
    goal = row if SCATTER else place
    target = target_ptr + goal[:, None] * CHANNELS + column[None, :]
    if SCATTER:
        tl.atomic_add(target, values, mask=mask, sem="relaxed")
    else:
        tl.store(target, values, mask=mask)


def move_slots(
    source: Tensor,  # [N_in, C], or products [B, C]; contiguous
    index: Tensor,  # [T] int32, rows of x, or of the sums, by slot
    counts: Tensor,  # [K] int64, triplets of every slot
    shifts: Tensor,  # [K] int64
    target: Tensor,  # the buffer [B, C], or float32 sums [N_out, C] that are added to
    *,
    scatter: bool = False,
    skip: int = -1,
    tile: int | None = None,
) -> None:
    """`gather` in the order of the slots, weight-stationary (TorchSparse Fig. 9a), or its scatter,
    which adds the product of every triplet by atomics in any order.
    """
    channels, volume = source.shape[1], counts.shape[0]
    tiles, tile, rows = tile_shape(channels, tile, (source if scatter else target).element_size())
    chunks = most_chunks(index.shape[0], volume, rows)
    constants = channels, tile, rows, volume, power_of_two(volume), scatter
    tensors = source, index, counts, shifts, target
    _launch_slots((chunks * tiles, 1), tensors, (skip,), constants, WARPS)


_launch_gather = TritonLauncher(gather_kernel)
_launch_scatter = TritonLauncher(scatter_kernel)
_launch_slots = TritonLauncher(slots_kernel)
