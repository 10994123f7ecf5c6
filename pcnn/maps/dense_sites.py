"""Coarse sites of one level by a bitmap over the cloud's box, where the box is small enough.

Against a sort this is one pass over the box instead of several over the sites
(`csrc/dense_sites.cu`).
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from pcnn.geometry import VoxelGrid
from pcnn.geometry.kernel_slots import Triple
from pcnn.kernels import cuda, pinned

_ARGUMENTS = struct.Struct("8Pqq4i4i3i3ii0q")
_THREADS = 256
_LINE_BITS = 512

#: Bytes of a bitmap that are always worth it, and further ones for every site.
FREE_BYTES, BYTES_PER_SITE = 32 << 20, 64


def bitmap_box(grid: VoxelGrid, stride: Triple) -> tuple[Triple, Triple] | None:
    """Lowest coarse cell of a grid and their number along x, y and z.

    ``None`` if a bitmap over them takes more memory than it is worth.
    """
    (a, b, c), (d, e, f) = grid.extent
    x, y, z = stride
    low = a // x, b // y, c // z
    size = d // x - low[0] + 1, e // y - low[1] + 1, f // z - low[2] + 1
    bits = grid.batch_size * size[0] * size[1] * size[2]
    if bits >= 1 << 32 or bits > 8 * (FREE_BYTES + BYTES_PER_SITE * grid.rows):
        return None
    return low, size


def bitmap_sites(
    grid: VoxelGrid, stride: Triple, box: tuple[Triple, Triple]
) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted unique sites ``stride * floor(c / stride)`` of a grid."""
    n, device, (low, size) = grid.rows, grid.device, box
    lines = max(1, -(-grid.batch_size * size[0] * size[1] * size[2] // _LINE_BITS))
    tiles = -(-lines // _THREADS)
    zeros = torch.zeros(16 * lines + tiles + 1, dtype=torch.int32, device=device)
    rest = torch.empty(lines, dtype=torch.int32, device=device)
    count = pinned.words(1, device)
    sites, inverse = torch.empty(2, n, dtype=torch.int64, device=device).unbind()
    words, before = zeros.data_ptr(), rest.data_ptr()
    arguments = _ARGUMENTS.pack(
        grid.keys.data_ptr(),
        words,
        before,
        words + 64 * lines,
        words + 64 * lines + 4 * tiles,
        sites.data_ptr(),
        inverse.data_ptr(),
        count.data_ptr(),
        n,
        lines,
        *(0, *low),
        *(grid.batch_size, *size),
        *stride,
        *grid.key_format.axis_bits,
        grid.key_format.batch_bits,
    )
    module = cuda.module("dense_sites.cu", device)
    blocks = -(-n // _THREADS)
    module.launch("mark_cells", blocks, arguments, device)
    module.launch("count_cells", tiles, arguments, device)
    module.launch("rank_cells", blocks, arguments, device)
    return sites, inverse, count
