"""Output sites of a single layer, by the kernels of the device.

A call waits for the device once, for the number of sites. A plan (`pcnn.ops.plan`) makes all levels
of a network with one wait in all.
"""

from __future__ import annotations

import torch

from pcnn.geometry import Kernel, VoxelGrid
from pcnn.maps.levels import bound_bits, extent_of, unique_sites
from pcnn.maps.native import has_kernels
from pcnn.maps.reached_sites import reached_sites


def strided(grid: VoxelGrid, kernel: Kernel) -> VoxelGrid:
    """Output sites of a convolution; see `VoxelGrid.strided`."""
    return grid.strided(kernel, _on_device if has_kernels(grid.device) else None)


def _on_device(grid: VoxelGrid, kernel: Kernel) -> VoxelGrid:
    if grid.sites == "reached":
        return reached_sites(grid, kernel)
    x, y, z = (t * s for t, s in zip(grid.tensor_stride, kernel.stride, strict=True))
    extent = extent_of(grid.keys, grid.layout)
    bits = bound_bits(grid.bound, grid.batch_size, (x, y, z))
    levels = unique_sites(grid.keys, extent, [(x, y, z)], grid.layout, bits=bits)
    return VoxelGrid(
        levels.keys[0, : int(levels.counts[0])],
        grid.batch_size,
        grid.bound + max(x, y, z) - 1,
        (x, y, z),
        grid.sites,
        levels.inverse[0].to(torch.int64),
        grid.layout,
    )
