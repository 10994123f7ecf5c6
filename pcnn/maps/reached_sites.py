"""Output sites that the inputs of a strided or dilating convolution reach, on CUDA devices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcnn.geometry import Kernel, VoxelGrid
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import HALF, check_bound
from pcnn.kernels.cuda import module
from pcnn.maps.levels import extent_of, unique_sites
from pcnn.maps.radix_sort import MAX_ITEMS

SOURCE = "reached_sites.cu"

#: Threads of a block of every kernel.
THREADS = 256

#: Most candidates of an input that are enumerated in unrolled loops.
UNROLLED = 64


def reached_sites(grid: VoxelGrid, kernel: Kernel, *, simplified: bool = True) -> VoxelGrid:
    """Sites u of the output with ``p = u + offset`` for some input site p and some slot.

    For every input p and slot the candidate is ``u = p - offset tensor_stride``, as a packed key.
    It is kept if the output's tensor stride divides it (modular check), a packed key can hold it
    (boundary check), and it lies in the grid's volume where it has one. Then they are sorted and
    unique. Equals the sites that ``VoxelGrid.strided`` derives under ``downsampling="reached"``,
    and those of ``VoxelGrid.dilated`` for a kernel of stride 1.

    The host waits once, for the number of sites: their memory is allocated exactly. Candidates
    take 48 bytes each of scratch memory, as many as there may be: ``prod_axis ceil(K / s)`` an
    input, 8 of them for K = 3, s = 2.

    Source: TorchSparse (MLSys 2022), appendix A, algorithm 3, and section 4.4.
    """
    steps = zip(grid.tensor_stride, kernel.stride, strict=True)
    x, y, z = (t * s for t, s in steps)
    reach = kernel.reach * max(grid.tensor_stride)
    check_bound(grid.bound, reach, "reached sites")
    axes = zip(kernel.size, _periods(kernel), strict=True)
    most = math.prod(-(-size // period) for size, period in axes)
    if grid.rows * most > MAX_ITEMS:
        raise ValueError(
            f"reached sites: {grid.rows} sites with up to {most} candidates each exceed the "
            f"{MAX_ITEMS} of one sort; split the batch, or use downsampling='floor'"
        )
    keys = grid.keys.contiguous()
    if not all(_volume(grid, kernel)):
        keys = keys[:0]
    elif grid.rows:
        found = torch.empty(grid.rows * most, dtype=torch.int64, device=grid.device)
        count = torch.zeros(1, dtype=torch.int32, device=grid.device)
        _reach(grid, kernel, keys, found, count, simplified and most <= UNROLLED)
        keys = _unique(keys, found, count, (x, y, z), reach)
    return grid.reached_level(kernel, keys)


def _periods(kernel: Kernel) -> list[int]:
    """Slots along every axis from one that leads to an output to the next."""
    axes = zip(kernel.stride, kernel.dilation, strict=True)
    return [stride // math.gcd(stride, dilation) for stride, dilation in axes]


def _volume(grid: VoxelGrid, kernel: Kernel) -> Triple:
    """Cells of the output's volume along every axis; 1 where there is no volume."""
    return (1, 1, 1) if grid.spatial_shape is None else kernel.shape_after(grid.spatial_shape)


def _reach(
    grid: VoxelGrid, kernel: Kernel, keys: Tensor, found: Tensor, count: Tensor, unrolled: bool
) -> None:
    """Write the candidates of all inputs to ``found``, and their number to ``count``."""
    steps = [t * s for t, s in zip(grid.tensor_stride, kernel.stride, strict=True)]
    low, span = [0] * 3, [2 * HALF - 1] * 3
    if grid.spatial_shape is not None:
        low, cells = [HALF] * 3, zip(_volume(grid, kernel), steps, strict=True)
        span = [min((n - 1) * step, HALF - 1) for n, step in cells]
    defines: dict[str, int] = {}
    if unrolled:
        own = kernel.size, kernel.stride, kernel.dilation, _periods(kernel)
        for letter, values in zip("KSDP", own, strict=True):
            defines |= {letter + axis: value for axis, value in zip("XYZ", values, strict=True)}
    module(SOURCE, grid.device, **defines).launch(
        "reach",
        -(-grid.rows // THREADS),
        keys=keys,
        candidates=found,
        count=count,
        n=grid.rows,
        cells=(grid.tensor_stride, [-HALF % step for step in steps]),
        size=kernel.size,
        stride=kernel.stride,
        dilation=kernel.dilation,
        period=_periods(kernel),
        padding=kernel.padding,
        low=low,
        span=span,
    )


def _unique(keys: Tensor, found: Tensor, count: Tensor, stride: Triple, reach: int) -> Tensor:
    """Ascending distinct keys of the first ``count`` ones ``found``, which lie around ``keys``."""
    extent = extent_of(keys)
    extent[1:4].add_(reach)  # highest x, y, z
    extent[5:8].add_(reach)  # lowest, counted from the top
    levels = unique_sites(found, extent, [stride], count)
    return levels.keys[0, : int(levels.counts[0])].clone()
