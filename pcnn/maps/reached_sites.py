"""Output sites that the inputs of a strided convolution reach, on CUDA devices."""

from __future__ import annotations

import math
import struct

import torch
from torch import Tensor

from pcnn.geometry import Kernel, VoxelGrid
from pcnn.kernels.cuda import module

SOURCE = "reached_sites.cu"

#: The struct ``Arguments`` of csrc/reached_sites.cu.
ARGUMENTS = struct.Struct("5Pq25i0q")

#: Threads of a block of every kernel.
THREADS = 256

#: What stands where there is no candidate: above every key.
SENTINEL = (1 << 63) - 1

#: Most candidates of an input that are enumerated in unrolled loops.
UNROLLED = 64


def reached_sites(
    grid: VoxelGrid, kernel: Kernel, *, fused: bool = True, simplified: bool = True
) -> VoxelGrid:
    """Sites u of the output with ``p = u + offset`` for some input site p and some slot.

    For every input p and slot: the candidate ``u = p - offset tensor_stride``, kept if the output's
    tensor stride divides it (modular check) and a packed key can hold it (boundary check), as a
    packed key; then sorted, unique. Equals the sites that ``VoxelGrid.strided`` derives under
    ``sites="reached"``.

    The host waits once, for the number of sites: their memory is allocated exactly.

    Source: TorchSparse (MLSys 2022), appendix A, algorithm 3, and section 4.4.

    Args:
        grid: input sites.
        kernel: of a strided convolution; with stride 1 the output sites are the input's.
        fused: all four steps in one kernel, candidates in registers, one atomic a block; otherwise
            one kernel a step, intermediate results in memory for all N K pairs.
        simplified: enumerate only the ``ceil(K / s)`` slots an axis that can pass the modular
            check, in unrolled loops of known size, and leave out what the input before reaches too;
            otherwise all K slots in one loop. Means nothing unless `fused`. Kernels with more than
            64 candidates an input are not unrolled.

    Returns:
        Grid of the output sites, in the batch and layout of the input; without an inverse.

    Raises:
        ValueError: the grid is on no CUDA device, coordinates come too close to the limit of the
            layout, the layout has an axis of more than 30 bits, or there may be more than
            2^31 - 1 candidates.
    """
    if not kernel.is_strided:
        return grid
    steps = zip(grid.tensor_stride, kernel.stride, strict=True)
    x, y, z = (t * s for t, s in steps)
    reach = kernel.reach * max(grid.tensor_stride)
    grid.layout.check_bound(grid.bound, reach, "reached sites")
    periods = [s // math.gcd(s, d) for s, d in zip(kernel.stride, kernel.dilation, strict=True)]
    most = math.prod(-(-k // period) for k, period in zip(kernel.size, periods, strict=True))
    slots = most if fused else kernel.volume
    if grid.rows * slots >= 1 << 31:
        raise ValueError(
            f"reached sites: {grid.rows} sites x {slots} candidates exceed 2^31 - 1; split the "
            "batch, or use sites='floor'"
        )
    if fused:
        keys = _fused(grid, kernel, grid.rows * most, simplified and most <= UNROLLED)
    else:
        keys = _separate(grid, kernel)
    return VoxelGrid(
        keys, grid.batch_size, grid.bound + reach, (x, y, z), grid.sites, None, grid.layout
    )


def _fused(grid: VoxelGrid, kernel: Kernel, capacity: int, simplified: bool) -> Tensor:
    device = grid.device
    defines: dict[str, int] = {}
    if simplified:
        for letter, values in (("K", kernel.size), ("S", kernel.stride), ("D", kernel.dilation)):
            defines |= {letter + axis: value for axis, value in zip("XYZ", values, strict=True)}
    found = torch.empty(capacity, dtype=torch.int64, device=device)
    count = torch.zeros(1, dtype=torch.int32, device=device)
    keys = grid.keys.contiguous()
    arguments = _arguments(grid, kernel, keys, found.data_ptr(), count.data_ptr(), 0, 0)
    blocks = -(-grid.rows // THREADS)
    module(SOURCE, device, **defines).launch("reach", blocks, arguments, device)
    return _unique(found, count)


def _separate(grid: VoxelGrid, kernel: Kernel) -> Tensor:
    device, pairs = grid.device, grid.rows * kernel.volume
    coords = torch.empty(pairs, 4, dtype=torch.int32, device=device)
    kept = torch.empty(pairs, dtype=torch.uint8, device=device)
    found = torch.empty(pairs, dtype=torch.int64, device=device)
    keys = grid.keys.contiguous()
    pointers = (found.data_ptr(), 0, coords.data_ptr(), kept.data_ptr())
    arguments = _arguments(grid, kernel, keys, *pointers)
    kernels, blocks = module(SOURCE, device), -(-pairs // THREADS)
    for stage in ("candidates", "modular", "boundary", "flatten"):
        kernels.launch(stage, blocks, arguments, device)
    return _unique(found, None)


def _arguments(
    grid: VoxelGrid, kernel: Kernel, keys: Tensor, found: int, count: int, coords: int, kept: int
) -> bytes:
    layout = grid.layout
    if max(layout.axis_bits) > 30:
        raise ValueError(f"reached sites: key layouts of at most 30 bits an axis, got {layout}")
    steps = [t * s for t, s in zip(grid.tensor_stride, kernel.stride, strict=True)]
    return ARGUMENTS.pack(
        keys.data_ptr(),
        found,
        count,
        coords,
        kept,
        grid.rows,
        *layout.shifts,
        *layout.axis_bits,
        *grid.tensor_stride,
        *(-half % step for half, step in zip(layout.half, steps, strict=True)),
        layout.batch_shift,
        *kernel.size,
        *kernel.stride,
        *kernel.dilation,
        *kernel.padding,
    )


def _unique(keys: Tensor, count: Tensor | None) -> Tensor:
    """Ascending distinct keys, of the first ``count`` or of all that are not the sentinel."""
    if count is not None:
        places = torch.arange(keys.shape[0], device=keys.device)
        keys = torch.where(places < count, keys, SENTINEL)
    ordered = torch.sort(keys).values
    first = ordered != SENTINEL
    first[1:] &= ordered[1:] != ordered[:-1]
    return ordered[first]
