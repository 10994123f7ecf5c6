"""Scatter in the order of output rows: a row sums its products in registers and is written once.

TorchSparse section 4.3.2 (Fig. 9b): all slots in one launch, output-stationary. Sums are float32
(float64 of float64 products) in the order of the slots, so there are no atomics and two runs give
identical bits. Rows without triplets are written as zeros.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.buffer_rows import buffer_rows
from pcnn.kernels.row_tiles import WARPS, tile_shape
from pcnn.kernels.triton_launch import TritonLauncher


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def scatter_kernel(  # type: ignore[no-untyped-def]
    products_ptr,  # [B, C]
    position_ptr,  # [T] int32
    slot_ptr,  # [T] int16
    offsets_ptr,  # [N_out + 1] int64
    shifts_ptr,  # [K] int64
    out_ptr,  # [N_out, C]
    rows,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
    SUMS: tl.constexpr,
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
    sums = tl.zeros((ROWS, TILE), dtype=SUMS)
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
        sums += term_0.to(SUMS)
        sums += term_1.to(SUMS)
        sums += term_2.to(SUMS)
        sums += term_3.to(SUMS)
        entry += 4
    place = row[:, None] * CHANNELS + column[None, :]
    values = sums.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + place, values, mask=exists[:, None] & inside[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def read_rows(  # type: ignore[no-untyped-def]
    products_ptr, row, column, inside, CHANNELS: tl.constexpr
):
    """Buffer rows ``row [R]`` as ``[R, TILE]``, zeros for negative ones."""
    place = row[:, None] * CHANNELS + column[None, :]
    return tl.load(products_ptr + place, mask=(row >= 0)[:, None] & inside[None, :], other=0)


def scatter(
    products: Tensor,
    by_out: tuple[Tensor, Tensor, Tensor],
    shifts: Tensor,
    out: Tensor,
    *,
    tile: int | None = None,
    vectorised: bool = True,
) -> None:
    """Sum the products of every output row, in one launch.

    ``out[i] = sum over (i, j, k) of products[p + shifts[k]]``, p the triplet's position in
    ``pairs``.

    Args:
        products: ``[B, C]``, contiguous.
        by_out: positions ``[T]`` int32 of the triplets of every output row, their slots ``[T]``
            int16, ``[N_out + 1]`` int64 offsets (`pcnn.geometry.layouts.by_out`).
        shifts: ``[K]`` int64.
        out: ``[N_out, C]``, contiguous, every row of it written, rounded to its dtype.
        tile: channels of a program, a power of two (`row_tiles.tiles_of`); ``None`` for whole rows.
        vectorised: whether threads move 16 bytes at once, or one channel.
    """
    rows, channels = out.shape
    if not rows:
        return
    position, slot, offsets = by_out
    tiles, tile, block = tile_shape(channels, tile, products.element_size(), vectorised)
    sums = tl.float64 if products.dtype == torch.float64 else tl.float32
    _launch_scatter(
        (triton.cdiv(rows, block) * tiles, 1),
        (products, position, slot, offsets, shifts, out),
        (rows,),
        (channels, tile, block, sums),
        WARPS,
    )


_launch_scatter = TritonLauncher(scatter_kernel)
