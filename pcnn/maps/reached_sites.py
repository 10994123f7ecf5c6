"""Output sites that the inputs of a strided or dilating convolution reach, on CUDA devices."""

from __future__ import annotations

import math

import torch

from pcnn.geometry import Kernel, VoxelGrid
from pcnn.geometry.packing import HALF, check_bound
from pcnn.kernels.cuda import module
from pcnn.maps.levels import pack_cells, unique_sites
from pcnn.maps.radix_sort import MAX_ITEMS

SOURCE = "reached_sites.cu"

#: Threads of a block of every kernel.
THREADS = 256

#: Most candidates of an input that are enumerated in unrolled loops.
UNROLLED = 64


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
    module(SOURCE, grid.device, **defines).launch(
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
