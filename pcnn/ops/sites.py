"""Output sites of a single layer, by the kernels of the device.

A call waits for the device once, for the number of sites. A plan (`pcnn.ops.plan`) makes all levels
of a network with one wait in all.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch

from pcnn.geometry import Geometry, Kernel, VoxelGrid
from pcnn.geometry.packing import HALF, check_bound
from pcnn.kernels.cuda import module
from pcnn.maps.base import has_kernels
from pcnn.maps.cell_bits import sites_in_box
from pcnn.maps.levels import box_bits, counted_sites, pack_cells, strided_points, unique_sites
from pcnn.maps.radix_sort import MAX_ITEMS, passes_of

Geom = TypeVar("Geom", bound=Geometry)

#: Threads of a block of every kernel.
THREADS = 256

#: Most candidates of an input that are enumerated in unrolled loops.
UNROLLED = 64


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
    stride = grid.stride_after(kernel)
    found = sites_in_box(grid, stride)
    if found is None:
        passes = passes_of(box_bits(grid.extent, grid.batch_size, stride))
        sites, (rows,), _ = counted_sites(grid.keys, [stride], passes)
        found = sites.keys[0, :rows], sites.inverse[0].to(torch.int64)
    return grid.floor_level(stride, *found)


def reached_sites(grid: VoxelGrid, kernel: Kernel, *, simplified: bool = True) -> VoxelGrid:
    """Sites u of the output with ``p = u + offset`` for some input site p and some slot.

    As `VoxelGrid.strided` under ``downsampling="reached"``, or `VoxelGrid.dilated`. Candidates that
    the output's stride divides, and a key and the volume hold, are sorted and made unique; they
    take 48 bytes each. The host waits once, for the number of sites.

    Source: TorchSparse (MLSys 2022), appendix A, algorithm 3, and section 4.4.
    """
    stride, reach = grid.stride_after(kernel), kernel.reach * max(grid.tensor_stride)
    check_bound(grid.bound, reach, "reached sites")
    # slots along every axis from one that leads to an output to the next
    axes = zip(kernel.stride, kernel.dilation, strict=True)
    periods = [step // math.gcd(step, dilation) for step, dilation in axes]
    most = math.prod(-(-size // p) for size, p in zip(kernel.size, periods, strict=True))
    if grid.rows * most > MAX_ITEMS:
        raise ValueError(
            f"reached sites: {grid.rows} sites with up to {most} candidates each exceed the "
            f"{MAX_ITEMS} of one sort; split the batch, or use downsampling='floor'"
        )
    level = grid.reached_level(kernel, grid.keys[:0])
    low, span = [0] * 3, [2 * HALF - 1] * 3
    if level.spatial_shape is not None:
        low, cells = [HALF] * 3, zip(level.spatial_shape, stride, strict=True)
        span = [min((n - 1) * step, HALF - 1) for n, step in cells]
    if not grid.rows or min(span) < 0:  # none, or a volume without a cell
        return level
    defines: dict[str, int] = {}
    if simplified and most <= UNROLLED:
        own = kernel.size, kernel.stride, kernel.dilation, periods
        for letter, values in zip("KSDP", own, strict=True):
            defines |= {letter + axis: value for axis, value in zip("XYZ", values, strict=True)}
    keys = grid.keys.contiguous()
    found = torch.empty(grid.rows * most, dtype=torch.int64, device=grid.device)
    count = torch.zeros(1, dtype=torch.int32, device=grid.device)
    module("reached_sites.cu", grid.device, **defines).launch(
        "reach",
        -(-grid.rows // THREADS),
        keys=keys,
        candidates=found,
        count=count,
        n=grid.rows,
        cells=(grid.tensor_stride, [-HALF % step for step in stride]),
        size=kernel.size,
        stride=kernel.stride,
        dilation=kernel.dilation,
        period=periods,
        padding=kernel.padding,
        low=low,
        span=span,
    )
    _, extent = pack_cells(keys)
    extent[1:4].add_(reach)  # highest x, y, z
    extent[5:8].add_(reach)  # lowest, counted from the top
    sites = unique_sites(found, extent, [stride], count)
    return grid.reached_level(kernel, sites.keys[0, : int(sites.counts[0])].clone())
