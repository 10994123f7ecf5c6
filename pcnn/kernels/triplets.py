"""Products over a list of triplets, one after another: the kernels of PointCNN++.

Algorithm 1 (``mvmr``) and Algorithm B of the supplement (``vvor``). A program walks L neighbours of
the list for one block ``B_in x B_out`` of the weights. Operands of the last triplet stay in
registers: a block of weights, a row of features or of gradients is read, and a sum is added to the
result, only where its number changes. The order of the list decides what changes rarely.

Two of the numbers of a triplet are listed; the third is the same along a run of the list, and only
the runs are stored. ``SORT`` names it: runs of ``k`` are slots, of ``i`` output rows, of ``j``
input rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.gathered_product import COMPUTE, slot_weight, weight_tile
from pcnn.kernels.product_tiles import ProductShape, power_of_two
from pcnn.kernels.triton_launch import TritonLauncher

#: Warps of a program, as in the paper: products of a vector and a block need no more.
WARPS = 1


@triton.jit  # type: ignore[untyped-decorator]
def run_of(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    triplet,
    runs_ptr,  # SORT "k": [VOLUME] int64, lengths of the runs; else [runs + 1] int64, their starts
    runs,
    SORT: tl.constexpr,
    VOLUME: tl.constexpr,
    POWER: tl.constexpr,
):
    """The run of equal numbers that holds a triplet, int32, and one past its end, int64."""
    if SORT == "k":
        slots = tl.arange(0, POWER)
        ends = tl.cumsum(tl.load(runs_ptr + slots, mask=slots < VOLUME, other=0), 0)
        run = tl.sum((ends <= triplet).to(tl.int32), 0)
        end = tl.min(tl.where(ends > triplet, ends, 0x7FFFFFFFFFFFFFFF), 0)
    else:
        run = runs * 0
        high = runs
        while run < high:  # runs that end at or before the triplet
            middle = (run + high) // 2
            if tl.load(runs_ptr + middle + 1) <= triplet:
                run = middle + 1
            else:
                high = middle
        end = tl.load(runs_ptr + run + 1)
    return run, end


@triton.jit  # type: ignore[untyped-decorator]
def triplets_of(  # type: ignore[no-untyped-def]
    runs_ptr,
    runs,
    SORT: tl.constexpr,
    VOLUME: tl.constexpr,
    POWER: tl.constexpr,
):
    """Number of triplets, int64: lists in memory of fixed size are longer."""
    if SORT == "k":
        slots = tl.arange(0, POWER)
        triplets = tl.sum(tl.load(runs_ptr + slots, mask=slots < VOLUME, other=0), 0)
    else:
        triplets = tl.load(runs_ptr + runs)
    return triplets


@triton.jit  # type: ignore[untyped-decorator]
def following_run(  # type: ignore[no-untyped-def]
    triplet,
    run,
    end,
    runs_ptr,
    runs,
    SORT: tl.constexpr,
    VOLUME: tl.constexpr,
    POWER: tl.constexpr,
):
    """The same for the triplet after those of ``run``; empty runs are passed over."""
    if SORT == "k":
        run, end = run_of(triplet, runs_ptr, runs, SORT, VOLUME, POWER)
    else:
        while end <= triplet:
            run += 1
            end = tl.load(runs_ptr + run + 1)
    return run, end


@triton.jit  # type: ignore[untyped-decorator]
def numbers_of(  # type: ignore[no-untyped-def]
    triplet,
    run,
    first_ptr,  # [T] int32: j where SORT is "k" or "i", else i
    second_ptr,  # [T] int32: i where SORT is "k", else k
    SORT: tl.constexpr,
    VOLUME: tl.constexpr,
    MIRRORED: tl.constexpr,
):
    """``(i, j, k)`` of a triplet, int64."""
    first = tl.load(first_ptr + triplet).to(tl.int64)
    second = tl.load(second_ptr + triplet).to(tl.int64)
    third = run.to(tl.int64)
    if SORT == "k":
        i, j, k = second, first, third
    elif SORT == "i":
        i, j, k = third, first, second
    else:
        i, j, k = first, third, second
    if MIRRORED:
        k = VOLUME - 1 - k
    return i, j, k


@triton.jit  # type: ignore[untyped-decorator]
def row_part(  # type: ignore[no-untyped-def]
    rows_ptr,
    row,
    group,
    channels,
    CHANNELS: tl.constexpr,
    GROUPS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Some channels of one group of a row, float32; zero beyond the last."""
    places = row * (CHANNELS * GROUPS) + group * CHANNELS + channels
    return tl.load(rows_ptr + places, channels < CHANNELS, 0.0).to(COMPUTE).to(tl.float32)


@triton.jit(do_not_specialize=["runs"])  # type: ignore[untyped-decorator]
def mvmr_kernel(  # type: ignore[no-untyped-def]
    x_ptr,  # [N_in, GROUPS * CHANNELS]
    weight_ptr,  # [VOLUME, C_in / GROUPS, C_out]
    first_ptr,
    second_ptr,
    runs_ptr,
    sums_ptr,  # [N_out, GROUPS * OUTPUTS] float32
    runs,
    SORT: tl.constexpr,
    VOLUME: tl.constexpr,
    POWER: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    MIRRORED: tl.constexpr,
    LENGTH: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Algorithm 1: L triplets, one block of the weights."""
    OUT_BLOCKS: tl.constexpr = (OUTPUTS + BLOCK_OUT - 1) // BLOCK_OUT
    IN_BLOCKS: tl.constexpr = (CHANNELS + BLOCK_IN - 1) // BLOCK_IN
    program = tl.program_id(0)
    columns = program % OUT_BLOCKS * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    start = program // OUT_BLOCKS % IN_BLOCKS * BLOCK_IN
    group = program // (OUT_BLOCKS * IN_BLOCKS) % GROUPS
    chunk = program // (OUT_BLOCKS * IN_BLOCKS * GROUPS)
    channels = start + tl.arange(0, BLOCK_IN)
    shown = columns < OUTPUTS
    sums_ptr += group * OUTPUTS + columns

    first = chunk.to(tl.int64) * LENGTH
    last = tl.minimum(first + LENGTH, triplets_of(runs_ptr, runs, SORT, VOLUME, POWER))
    if first >= last:
        return
    run, end = run_of(first, runs_ptr, runs, SORT, VOLUME, POWER)
    i, j, k = numbers_of(first, run, first_ptr, second_ptr, SORT, VOLUME, MIRRORED)
    matrix = slot_weight(weight_ptr, k, group, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED)
    weight = weight_tile(
        matrix, start, columns, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED, BLOCK_IN, COMPUTE
    )
    weight = weight.to(tl.float32)
    row = row_part(x_ptr, j, group, channels, CHANNELS, GROUPS, COMPUTE)
    sums = tl.sum(weight * row[:, None], 0)
    for step in range(1, (last - first).to(tl.int32)):
        triplet = first + step
        if triplet >= end:
            run, end = following_run(triplet, run, end, runs_ptr, runs, SORT, VOLUME, POWER)
        next_i, next_j, next_k = numbers_of(
            triplet, run, first_ptr, second_ptr, SORT, VOLUME, MIRRORED
        )
        if next_j != j:
            j = next_j
            row = row_part(x_ptr, j, group, channels, CHANNELS, GROUPS, COMPUTE)
        if next_k != k:
            k = next_k
            matrix = slot_weight(weight_ptr, k, group, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED)
            weight = weight_tile(
                matrix, start, columns, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED, BLOCK_IN, COMPUTE
            ).to(tl.float32)
        product = tl.sum(weight * row[:, None], 0)
        if next_i != i:
            tl.atomic_add(sums_ptr + i * (GROUPS * OUTPUTS), sums, mask=shown, sem="relaxed")
            i = next_i
            sums = product
        else:
            sums += product
    tl.atomic_add(sums_ptr + i * (GROUPS * OUTPUTS), sums, mask=shown, sem="relaxed")


@triton.jit(do_not_specialize=["runs"])  # type: ignore[untyped-decorator]
def vvor_kernel(  # type: ignore[no-untyped-def]
    x_ptr,  # [N_in, GROUPS * CHANNELS]
    grad_ptr,  # [N_out, GROUPS * OUTPUTS]
    first_ptr,
    second_ptr,
    runs_ptr,
    sums_ptr,  # [VOLUME, CHANNELS, GROUPS * OUTPUTS] float32
    runs,
    SORT: tl.constexpr,
    VOLUME: tl.constexpr,
    POWER: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    MIRRORED: tl.constexpr,
    LENGTH: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Algorithm B: L triplets, one block of the gradient of the weights."""
    OUT_BLOCKS: tl.constexpr = (OUTPUTS + BLOCK_OUT - 1) // BLOCK_OUT
    IN_BLOCKS: tl.constexpr = (CHANNELS + BLOCK_IN - 1) // BLOCK_IN
    SLOT_SIZE: tl.constexpr = CHANNELS * GROUPS * OUTPUTS
    program = tl.program_id(0)
    columns = program % OUT_BLOCKS * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    channels = program // OUT_BLOCKS % IN_BLOCKS * BLOCK_IN + tl.arange(0, BLOCK_IN)
    group = program // (OUT_BLOCKS * IN_BLOCKS) % GROUPS
    chunk = program // (OUT_BLOCKS * IN_BLOCKS * GROUPS)
    inside = (channels < CHANNELS)[:, None] & (columns < OUTPUTS)[None, :]
    places = channels[:, None] * (GROUPS * OUTPUTS) + (group * OUTPUTS + columns)[None, :]

    first = chunk.to(tl.int64) * LENGTH
    last = tl.minimum(first + LENGTH, triplets_of(runs_ptr, runs, SORT, VOLUME, POWER))
    if first >= last:
        return
    run, end = run_of(first, runs_ptr, runs, SORT, VOLUME, POWER)
    i, j, k = numbers_of(first, run, first_ptr, second_ptr, SORT, VOLUME, MIRRORED)
    row = row_part(x_ptr, j, group, channels, CHANNELS, GROUPS, COMPUTE)
    grad = row_part(grad_ptr, i, group, columns, OUTPUTS, GROUPS, COMPUTE)
    sums = row[:, None] * grad[None, :]
    for step in range(1, (last - first).to(tl.int32)):
        triplet = first + step
        if triplet >= end:
            run, end = following_run(triplet, run, end, runs_ptr, runs, SORT, VOLUME, POWER)
        next_i, next_j, next_k = numbers_of(
            triplet, run, first_ptr, second_ptr, SORT, VOLUME, MIRRORED
        )
        if next_i != i:
            i = next_i
            grad = row_part(grad_ptr, i, group, columns, OUTPUTS, GROUPS, COMPUTE)
        if next_j != j:
            j = next_j
            row = row_part(x_ptr, j, group, channels, CHANNELS, GROUPS, COMPUTE)
        if next_k != k:
            tl.atomic_add(sums_ptr + k * SLOT_SIZE + places, sums, mask=inside, sem="relaxed")
            k = next_k
            sums = row[:, None] * grad[None, :]
        else:
            sums += row[:, None] * grad[None, :]
    tl.atomic_add(sums_ptr + k * SLOT_SIZE + places, sums, mask=inside, sem="relaxed")


def mvmr(
    x: Tensor,  # [N_in, C_in]
    weight: Tensor,  # [K, C_in / groups, C_out]
    order: tuple[Tensor, Tensor, Tensor],
    sort: str,
    n_out: int,
    spec: ConvSpec,
    length: int,
    block_in: int,
    block_out: int,
) -> Tensor:
    """``out[i] = sum over all triplets (i, j, k) of x[j] @ W[k]``."""
    shape = ProductShape.of(weight, spec)
    sums = x.new_zeros(n_out, shape.width, dtype=torch.float32)
    sizes = shape.channels, shape.outputs, shape.groups
    _MVMR(
        (_programs(order, *sizes, length, block_in, block_out), 1),
        (x.contiguous(), weight.contiguous(), *order, sums),
        (order[2].shape[0] - 1,),
        (
            *(sort, shape.volume, power_of_two(shape.volume), *sizes, shape.transposed),
            *(shape.mirrored, length, block_in, block_out, COMPUTE[spec.compute_dtype]),
        ),
        WARPS,
    )
    return sums


def vvor(
    x: Tensor,
    grad: Tensor,
    order: tuple[Tensor, Tensor, Tensor],
    sort: str,
    volume: int,
    spec: ConvSpec,
    length: int,
    block_in: int,
    block_out: int,
) -> Tensor:
    """``out[k] = sum over (i, j) of x[j]^T grad[i]``; arguments as of `mvmr`."""
    sizes = x.shape[1] // spec.groups, grad.shape[1] // spec.groups, spec.groups
    sums = torch.zeros(volume, sizes[0], grad.shape[1], dtype=torch.float32, device=x.device)
    _VVOR(
        (_programs(order, *sizes, length, block_in, block_out), 1),
        (x.contiguous(), grad.contiguous(), *order, sums),
        (order[2].shape[0] - 1,),
        (
            *(sort, volume, power_of_two(volume), *sizes, spec.mirrored),
            *(length, block_in, block_out, COMPUTE[spec.compute_dtype]),
        ),
        WARPS,
    )
    return sums


def _programs(
    order: tuple[Tensor, Tensor, Tensor],
    channels: int,
    outputs: int,
    groups: int,
    length: int,
    block_in: int,
    block_out: int,
) -> int:
    """One for every L triplets, block of the weights and group."""
    blocks = -(-channels // block_in) * -(-outputs // block_out)
    return -(-order[0].shape[0] // length) * blocks * groups


_MVMR = TritonLauncher(mvmr_kernel)
_VVOR = TritonLauncher(vvor_kernel)
