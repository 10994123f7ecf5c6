"""Output sites of a single layer, by the kernels of the device.

A call waits for the device once, for the number of sites. A plan (`pcnn.ops.plan`) makes all levels
of a network with one wait in all.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pcnn.geometry import Geometry, Kernel, VoxelGrid
from pcnn.maps.device_layouts import has_kernels
from pcnn.maps.levels import box_bits
from pcnn.maps.point_levels import strided_points
from pcnn.maps.radix_sort import passes_of
from pcnn.maps.reached_sites import reached_sites
from pcnn.ops.device_plan import DevicePlan
from pcnn.ops.recipe import Recipe

Geom = TypeVar("Geom", bound=Geometry)


def output_sites(geometry: Geom, kernel: Kernel) -> Geom:
    """Output sites of a convolution on voxels or points; see `Geometry.strided`."""
    derive: Any = None
    if has_kernels(geometry.device):
        derive = _on_device if isinstance(geometry, VoxelGrid) else strided_points
    return geometry.strided(kernel, derive)


def dilated_sites(geometry: Geom, kernel: Kernel) -> Geom:
    """Output sites of a convolution of stride 1 that is not submanifold; see `Geometry.dilated`."""
    derive = reached_sites if has_kernels(geometry.device) and geometry.name == "voxel" else None
    return geometry.dilated(kernel, derive)  # type: ignore[arg-type]


def _on_device(grid: VoxelGrid, kernel: Kernel) -> VoxelGrid:
    if grid.downsampling == "reached":
        return reached_sites(grid, kernel)
    plan = DevicePlan(Recipe(((0, "down", kernel),), ()), grid.tensor_stride, grid.downsampling)
    passes = passes_of(box_bits(grid.extent, grid.batch_size, plan.strides[1]))
    plan.passes = passes, passes
    level: VoxelGrid = plan.exact(grid, None, False)[0][1]
    return level
