"""Output sites of a single layer, by the kernels of the device.

A call waits for the device once, for the number of sites. A plan (`pcnn.ops.plan`) makes all levels
of a network with one wait in all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from pcnn.geometry import Geometry, Kernel, VoxelGrid
from pcnn.kernels import pinned
from pcnn.maps.cell_bits import CellBits, bitmap_words, fitting_words
from pcnn.maps.device_layouts import has_kernels
from pcnn.maps.levels import box_bits, extent_of, unique_sites
from pcnn.maps.point_levels import strided_points
from pcnn.maps.radix_sort import passes_of
from pcnn.maps.reached_sites import reached_sites

Geom = TypeVar("Geom", bound=Geometry)


def output_sites(geometry: Geom, kernel: Kernel) -> Geom:
    """Output sites of a convolution on voxels or points; see `Geometry.strided`."""
    found = geometry.level(kernel) if kernel.is_strided else geometry
    if found is not None:
        return found
    derive = _ON_DEVICE[geometry.name] if has_kernels(geometry.device) else None
    return geometry.strided(kernel, derive)


def dilated_sites(geometry: Geom, kernel: Kernel) -> Geom:
    """Output sites of a convolution of stride 1 that is not submanifold; see `Geometry.dilated`."""
    derive = reached_sites if has_kernels(geometry.device) and geometry.name == "voxel" else None
    return geometry.dilated(kernel, derive)  # type: ignore[arg-type]


def _on_device(grid: VoxelGrid, kernel: Kernel) -> VoxelGrid:
    if grid.downsampling == "reached":
        return reached_sites(grid, kernel)
    x, y, z = (t * s for t, s in zip(grid.tensor_stride, kernel.stride, strict=True))
    stride = x, y, z
    keys, box = grid.keys, (grid.extent, grid.batch_size)
    extent = extent_of(keys)
    words = fitting_words(bitmap_words(*box, [stride]), grid.rows)
    if words:
        report = torch.zeros(3, dtype=torch.int32, device=grid.device)
        report[:1].fill_(grid.rows)
        given, counts, needed = report.split(1)
        bits = CellBits.of(words, grid.device)
        bits.marks.zero_()
        sizes = grid.batch_size, [grid.rows], counts, needed
        levels = bits.sites(keys, given, extent, [stride], *sizes)
    else:
        passes = passes_of(box_bits(*box, stride))
        levels = unique_sites(keys, extent, [stride], passes=passes)
    (rows,) = pinned.read_copy(levels.counts)
    return grid.floor_level(stride, levels.keys[0, :rows], levels.inverse[0].to(torch.int64))


_ON_DEVICE: dict[str, Callable[[Any, Kernel], Any]] = {
    "voxel": _on_device,
    "point": strided_points,
}
