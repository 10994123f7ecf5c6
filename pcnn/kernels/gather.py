"""Gather in the order of input rows: every row is read once, and written wherever it is needed.

TorchSparse section 4.3.2 (Fig. 9b): all slots in one launch, input-stationary. A program holds some
rows in registers, looks up the triplets of each, and writes the row to the buffer rows of all of
them. Programs split channels by a tile that Minuet (section 5.2.1) tunes.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.buffer_rows import buffer_rows
from pcnn.kernels.row_tiles import WARPS, tile_shape
from pcnn.kernels.triton_launch import TritonLauncher


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
    x: Tensor,
    by_in: tuple[Tensor, Tensor, Tensor],
    shifts: Tensor,
    buffer: Tensor,
    *,
    skip: int = -1,
    tile: int | None = None,
    vectorised: bool = True,
) -> None:
    """Copy the input row of every triplet to its place in a padded buffer, in one launch.

    ``buffer[p + shifts[k]] = x[j]`` for the triplet (i, j, k) at position p of ``pairs``. Other
    rows of the buffer stay as they are. The same with ``by_out`` gathers rows of gradients.

    Args:
        x: ``[N_in, C]``, contiguous.
        by_in: positions ``[T]`` int32 of the triplets of every input row, their slots ``[T]``
            int16, ``[N_in + 1]`` int64 offsets (`pcnn.geometry.layouts.by_in`).
        shifts: ``[K]`` int64.
        buffer: ``[B, C]``, contiguous, written; values are rounded to its dtype.
        skip: a slot that is not gathered, -1 if all are.
        tile: channels of a program, a power of two (`row_tiles.tiles_of`); ``None`` for whole rows.
        vectorised: whether threads move 16 bytes at once, or one channel.
    """
    rows, channels = x.shape
    position, slot, offsets = by_in
    if not position.shape[0]:
        return
    tiles, tile, block = tile_shape(channels, tile, buffer.element_size(), vectorised)
    _launch_gather(
        (triton.cdiv(rows, block) * tiles, 1),
        (x, position, slot, offsets, shifts, buffer),
        (rows, skip),
        (channels, tile, block),
        WARPS,
    )


_launch_gather = TritonLauncher(gather_kernel)
