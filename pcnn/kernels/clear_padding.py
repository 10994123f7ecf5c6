"""Zeros in the rows of a padded buffer that belong to no triplet."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.row_tiles import WARPS, tile_shape
from pcnn.kernels.triton_launch import TritonLauncher


@triton.jit(do_not_specialize=["blocks"])  # type: ignore[untyped-decorator]
def clear_padding_kernel(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
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

    Args:
        ranges: ``[K, 2]`` int64, first and one-past-last row of every range.
        longest: rows of the longest range.
        buffer: ``[B, C]``, contiguous.
    """
    channels = buffer.shape[1]
    tiles, tile, rows = tile_shape(channels, None, buffer.element_size(), vectorised=True)
    blocks = triton.cdiv(longest, rows)
    grid = (ranges.shape[0] * blocks * tiles, 1)
    _launch_clear(grid, (ranges, buffer), (blocks,), (channels, tile, rows), WARPS)


_launch_clear = TritonLauncher(clear_padding_kernel)
