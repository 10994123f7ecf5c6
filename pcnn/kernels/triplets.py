"""Products over a list of triplets, one after another: the kernels of PointCNN++.

Algorithm 1 (``mvmr``) and Algorithm B of the supplement (``vvor``). A program walks L neighbours of
the list for one block of the weights. Operands of the last triplet stay in registers: a block, a
row of features or of gradients is read, and a sum is added to the result, only where its number
changes. Two of the numbers of a triplet are listed; of the third only its runs are stored: ``SORT``
names it, ``k`` for slots, ``i`` for output rows, ``j`` for input rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.gathered_product import COMPUTE, slot_weight, weight_tile
from pcnn.kernels.product_tiles import ProductShape
from pcnn.kernels.triton_launch import TritonLauncher

#: Warps of a program, as in the paper: products of a vector and a block need no more.
WARPS = 1


@triton.jit
def run_of(triplet, runs_ptr, runs):  # type: ignore[no-untyped-def]
    """The run of equal numbers that holds a triplet, int32."""
    run = runs * 0
    high = runs
    while run < high:  # runs that end at or before the triplet
        middle = (run + high) // 2
        if tl.load(runs_ptr + middle + 1) <= triplet:
            run = middle + 1
        else:
            high = middle
    return run


@triton.jit  # type: ignore[untyped-decorator]
def numbers_of(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
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


@triton.jit  # type: ignore[untyped-decorator]
def operand_of(  # type: ignore[no-untyped-def]
    other_ptr,
    number,
    start,
    group,
    columns,
    OUTER: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """What a row of features is multiplied by: a row of gradients, or a block of the weights."""
    if OUTER:
        found = row_part(other_ptr, number, group, columns, OUTPUTS, GROUPS, COMPUTE)
    else:
        matrix = slot_weight(other_ptr, number, group, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED)
        found = weight_tile(
            matrix, start, columns, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED, BLOCK_IN, COMPUTE
        ).to(tl.float32)
    return found


@triton.jit  # type: ignore[untyped-decorator]
def product_of(row, other, OUTER: tl.constexpr):  # type: ignore[no-untyped-def]
    """The outer product of two rows, or a row times a block."""
    return row[:, None] * other[None, :] if OUTER else tl.sum(other * row[:, None], 0)


@triton.jit(do_not_specialize=["runs"])  # type: ignore[untyped-decorator]
def triplets_kernel(  # type: ignore[no-untyped-def]
    x_ptr,  # [N_in, GROUPS * CHANNELS]
    other_ptr,  # [VOLUME, C_in / GROUPS, C_out], or OUTER: gradients [N_out, GROUPS * OUTPUTS]
    first_ptr,
    second_ptr,
    runs_ptr,  # [runs + 1] int64, where runs start; the last one: lists in fixed memory are longer
    sums_ptr,  # [N_out, GROUPS * OUTPUTS], or OUTER: [VOLUME, CHANNELS, GROUPS * OUTPUTS]; float32
    runs,
    OUTER: tl.constexpr,
    SORT: tl.constexpr,
    VOLUME: tl.constexpr,
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
    """L triplets, one block of the weights (Algorithm 1) or of their gradient (Algorithm B)."""
    OUT_BLOCKS: tl.constexpr = (OUTPUTS + BLOCK_OUT - 1) // BLOCK_OUT
    IN_BLOCKS: tl.constexpr = (CHANNELS + BLOCK_IN - 1) // BLOCK_IN
    program = tl.program_id(0)
    columns = program % OUT_BLOCKS * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    start = program // OUT_BLOCKS % IN_BLOCKS * BLOCK_IN
    group = program // (OUT_BLOCKS * IN_BLOCKS) % GROUPS
    chunk = program // (OUT_BLOCKS * IN_BLOCKS * GROUPS)
    channels = start + tl.arange(0, BLOCK_IN)
    # sums are added behind the first element of row i, or of slot k
    size: tl.constexpr = (CHANNELS if OUTER else 1) * GROUPS * OUTPUTS
    if OUTER:
        shown = (channels < CHANNELS)[:, None] & (columns < OUTPUTS)[None, :]
        places = channels[:, None] * (GROUPS * OUTPUTS) + (group * OUTPUTS + columns)[None, :]
    else:
        shown = columns < OUTPUTS
        places = group * OUTPUTS + columns

    first = chunk.to(tl.int64) * LENGTH
    last = tl.minimum(first + LENGTH, tl.load(runs_ptr + runs))
    if first >= last:
        return
    run = run_of(first, runs_ptr, runs)
    end = tl.load(runs_ptr + run + 1)
    i, j, k = numbers_of(first, run, first_ptr, second_ptr, SORT, VOLUME, MIRRORED)
    target = k if OUTER else i
    inner = i if OUTER else k
    row = row_part(x_ptr, j, group, channels, CHANNELS, GROUPS, COMPUTE)
    other = operand_of(
        *(other_ptr, inner, start, group, columns),
        *(OUTER, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED, BLOCK_IN, COMPUTE),
    )
    sums = product_of(row, other, OUTER)
    for step in range(1, (last - first).to(tl.int32)):
        triplet = first + step
        while end <= triplet:  # empty runs are passed over
            run += 1
            end = tl.load(runs_ptr + run + 1)
        i, next_j, k = numbers_of(triplet, run, first_ptr, second_ptr, SORT, VOLUME, MIRRORED)
        next_target = k if OUTER else i
        next_inner = i if OUTER else k
        if next_j != j:
            j = next_j
            row = row_part(x_ptr, j, group, channels, CHANNELS, GROUPS, COMPUTE)
        if next_inner != inner:
            inner = next_inner
            other = operand_of(
                *(other_ptr, inner, start, group, columns),
                *(OUTER, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED, BLOCK_IN, COMPUTE),
            )
        product = product_of(row, other, OUTER)
        if next_target != target:
            tl.atomic_add(sums_ptr + target * size + places, sums, mask=shown, sem="relaxed")
            target = next_target
            sums = product
        else:
            sums += product
    tl.atomic_add(sums_ptr + target * size + places, sums, mask=shown, sem="relaxed")


def sums_of_triplets(
    x: Tensor,  # [N_in, C_in]
    other: Tensor,  # weights [K, C_in / groups, C_out], or with a volume gradients [N_out, C_out]
    order: Sequence[
        Tensor
    ],  # the listed numbers of the triplets, and where runs of the third start
    sort: str,
    n_out: int,
    volume: int | None,
    spec: ConvSpec,
    blocks: Sequence[int],  # triplets of a program, input and output channels of a block
) -> Tensor:
    """``out[i] = sum of x[j] @ W[k]`` over all triplets (i, j, k), float32.

    With a volume ``out[k] = sum of x[j]^T grad[i]``. One program for every L triplets, block of the
    weights and group.
    """
    outer, groups = volume is not None, spec.groups
    if volume is None:
        shape = ProductShape.of(other, spec)
        sizes, width = (shape.volume, shape.channels, shape.outputs), shape.width
        sums = x.new_zeros(n_out, width, dtype=torch.float32)
    else:
        width = other.shape[1]
        sizes = volume, x.shape[1] // groups, width // groups
        sums = x.new_zeros(*sizes[:2], width, dtype=torch.float32)
    length, block_in, block_out = blocks
    tiles = -(-sizes[1] // block_in) * -(-sizes[2] // block_out) * groups
    _LAUNCH(
        (-(-order[0].shape[0] // length) * tiles, 1),
        (x.contiguous(), other.contiguous(), *order, sums),
        (order[2].shape[0] - 1,),
        (
            *(outer, sort, *sizes, groups, spec.transposed, spec.mirrored),
            *(*blocks, COMPUTE[spec.compute_dtype]),
        ),
        WARPS,
    )
    return sums


_LAUNCH = TritonLauncher(triplets_kernel)
