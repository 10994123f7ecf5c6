"""Coarse sites of one level by a bitmap over the cloud's box, where the box is small enough.

Against a sort this is one pass over the box instead of several over the sites
(`csrc/dense_sites.cu`).
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from pcnn.geometry import VoxelGrid
from pcnn.geometry.kernel import Triple
from pcnn.kernels import cuda

_ARGUMENTS = struct.Struct("8Pqq4i4i3i3ii0q")
_THREADS = 256
_LINE_BITS = 512

#: Bytes of a bitmap that are always worth it, and further ones for every site.
FREE_BYTES, BYTES_PER_SITE = 32 << 20, 64


def fits_bitmap(grid: VoxelGrid, stride: Triple) -> bool:
    """Whether the box of a grid, in cells of a stride, makes a bitmap worth its memory."""
    bits = _cells(grid, stride)
    return bits < 1 << 32 and bits <= 8 * (FREE_BYTES + BYTES_PER_SITE * grid.rows)


def bitmap_sites(grid: VoxelGrid, stride: Triple) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted unique sites ``stride * floor(c / stride)`` of a grid.

    Args:
        grid: fine sites whose box fits (`fits_bitmap`).
        stride: in level-0 voxels.

    Returns:
        ``[N]`` int64 keys, of which the first ``count`` are sites; ``[N]`` int64 row above every
        fine site; ``count [1]`` int32 on the device.
    """
    n, device = grid.rows, grid.device
    lines = max(1, -(-_cells(grid, stride) // _LINE_BITS))
    tiles = -(-lines // _THREADS)
    zeros = torch.zeros(16 * lines + tiles + 1, dtype=torch.int32, device=device)
    rest = torch.empty(lines + 1, dtype=torch.int32, device=device)
    sites, inverse = torch.empty(2, n, dtype=torch.int64, device=device).unbind()
    words, before, row = zeros.data_ptr(), rest.data_ptr(), grid.layout
    low, high = _coarse(grid, stride)
    arguments = _ARGUMENTS.pack(
        grid.keys.data_ptr(),
        words,
        before,
        words + 64 * lines,
        words + 64 * lines + 4 * tiles,
        sites.data_ptr(),
        inverse.data_ptr(),
        before + 4 * lines,
        n,
        lines,
        *(0, *low),
        *(grid.batch_size, *(b - a + 1 for a, b in zip(low, high, strict=True))),
        *stride,
        *row.axis_bits,
        row.batch_bits,
    )
    module = cuda.module("dense_sites.cu", device)
    blocks = -(-n // _THREADS)
    module.launch("mark_cells", blocks, arguments, device)
    module.launch("list_cells", tiles, arguments, device)
    module.launch("rank_cells", blocks, arguments, device)
    return sites, inverse, rest[lines:]


def _coarse(grid: VoxelGrid, stride: Triple) -> tuple[list[int], list[int]]:
    """Lowest and highest coarse cell along x, y and z."""
    low, high = grid.extent
    return (
        [a // s for a, s in zip(low, stride, strict=True)],
        [b // s for b, s in zip(high, stride, strict=True)],
    )


def _cells(grid: VoxelGrid, stride: Triple) -> int:
    low, high = _coarse(grid, stride)
    cells = grid.batch_size
    for a, b in zip(low, high, strict=True):
        cells *= b - a + 1
    return cells
