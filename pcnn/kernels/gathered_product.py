"""Rows gathered from features, times one slot of the weight: what Triton kernels share.

The weight ``[K, C_in / G, C_out]`` is read in place, transposed or not: a group's part of a slot is
a matrix of contracted channels by output channels, whose strides exchange when it is transposed.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.conv_spec import tf32_allowed
from pcnn.kernels.product_tiles import power_of_two

#: Dtypes that the kernels multiply in, as Triton calls them.
COMPUTE = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}

#: Bytes that the rows of two sources lie apart by multiples of, for accesses as wide.
ALIGNMENT = 16


def precision_of(compute_dtype: torch.dtype) -> str:
    """How `tl.dot` multiplies float32: in TF32 where torch's own switch allows it, else exactly."""
    allowed = compute_dtype == torch.float32 and tf32_allowed()
    return "tf32" if allowed else "ieee"


def compute_type(compute_dtype: torch.dtype, name: str) -> Any:
    """Triton's dtype of the operands."""
    if compute_dtype not in COMPUTE:
        raise ValueError(
            f"{name} multiplies float16, bfloat16 and float32, got compute_dtype={compute_dtype}; "
            "use the dataflow 'reference', which serves every float dtype"
        )
    return COMPUTE[compute_dtype]


def operand(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor rounded once, not in every program that reads it, and contiguous."""
    return (tensor if tensor.dtype is dtype else tensor.to(dtype)).contiguous()


def second_source(x: Tensor, second: Tensor) -> tuple[Tensor, int]:
    """A second source that kernels reach from the first: one pointer,
    so that one load serves both.
    """
    if (second.data_ptr() - x.data_ptr()) % ALIGNMENT:
        second = second.clone()
    return second, (second.data_ptr() - x.data_ptr()) // x.element_size()


@triton.jit  # type: ignore[untyped-decorator]
def slot_weight(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    weight_ptr,
    slot,
    group,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    SIDE: tl.constexpr = 1,
):
    """Address of one group's part of ``W[slot]``."""
    step = CHANNELS if TRANSPOSED else OUTPUTS  # groups lie side by side on the last axis
    return weight_ptr + slot.to(tl.int64) * (CHANNELS * OUTPUTS * GROUPS // SIDE) + group * step


@triton.jit  # type: ignore[untyped-decorator]
def weight_tile(  # type: ignore[no-untyped-def]
    matrix_ptr,
    start,
    columns,  # [COLUMNS]
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    DEPTH: tl.constexpr,
    COMPUTE: tl.constexpr,
    SIDE: tl.constexpr = 1,
):
    """Tile ``[DEPTH, COLUMNS]`` of a group's part of a slot; what lies outside it is zero."""
    channels = start + tl.arange(0, DEPTH)
    there = (channels < CHANNELS)[:, None] & (columns < OUTPUTS)[None, :]
    row = channels
    column = columns
    if SIDE > 1:
        there &= (row // (CHANNELS // SIDE))[:, None] == (column // (OUTPUTS // SIDE))[None, :]
        if TRANSPOSED:
            column = column % (OUTPUTS // SIDE)
        else:
            row = row % (CHANNELS // SIDE)
    if TRANSPOSED:
        places = row[:, None] + column[None, :] * (CHANNELS * GROUPS)
    else:
        places = row[:, None] * (OUTPUTS * GROUPS) + column[None, :]
    return tl.load(matrix_ptr + places, mask=there, other=0.0).to(COMPUTE)


@triton.jit  # type: ignore[untyped-decorator]
def row_tile(  # type: ignore[no-untyped-def]
    x_ptr,
    rows,  # [ROWS] int64
    live,  # [ROWS] bool
    start,
    group,
    CHANNELS: tl.constexpr,
    GROUPS: tl.constexpr,
    DEPTH: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Tile ``[ROWS, DEPTH]`` of gathered rows of one group."""
    channels = start + tl.arange(0, DEPTH)
    places = (rows * (CHANNELS * GROUPS))[:, None] + (group * CHANNELS + channels)[None, :]
    there = live[:, None] & (channels < CHANNELS)[None, :]
    return tl.load(x_ptr + places, mask=there, other=0.0).to(COMPUTE)


@triton.jit  # type: ignore[untyped-decorator]
def gathered_product(  # type: ignore[no-untyped-def]
    sums,  # [ROWS, COLUMNS] float32
    x_ptr,
    rows,  # [ROWS] int64
    live,  # [ROWS] bool
    group,
    matrix_ptr,
    columns,  # [COLUMNS]
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    DEPTH: tl.constexpr,
    COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
    SIDE: tl.constexpr = 1,
):
    """``sums + x[rows] @ W[k]`` of one group; arguments as of `row_tile` and `weight_tile`."""
    for start in range(0, CHANNELS, DEPTH):
        inputs = row_tile(x_ptr, rows, live, start, group, CHANNELS, GROUPS, DEPTH, COMPUTE)
        weight = weight_tile(
            matrix_ptr, start, columns, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED, DEPTH, COMPUTE, SIDE
        )
        sums = tl.dot(inputs, weight, sums, input_precision=PRECISION)
    return sums


@triton.jit  # type: ignore[untyped-decorator]
def row_addresses(  # type: ignore[no-untyped-def]
    x_ptr,
    start,  # first channel of the block, counted over the blocks of both sources
    group,
    second_offset,
    CHANNELS: tl.constexpr,
    SECOND: tl.constexpr,
    GROUPS: tl.constexpr,
    DEPTH: tl.constexpr,
    PACK: tl.constexpr,
):
    """Where a block of channels lies in a row."""
    FIRST_BLOCKS: tl.constexpr = (CHANNELS + DEPTH - 1) // DEPTH
    channels = tl.arange(0, DEPTH)
    channel = channels % CHANNELS if PACK > 1 else start + channels
    inside = channel < CHANNELS
    weight_row = channel
    stride = GROUPS * CHANNELS
    source = x_ptr + (group * CHANNELS + channel)[None, :]
    if SECOND > 0:
        in_second = start >= FIRST_BLOCKS * DEPTH
        offset = tl.where(in_second, second_offset, 0)
        stride = tl.where(in_second, SECOND, CHANNELS)
        if CHANNELS % 8 == 0 and SECOND % 8 == 0:  # so that rows are gathered in wide accesses
            offset = tl.multiple_of(offset, 8)
            stride = tl.multiple_of(stride, 8)
        channel = start - tl.where(in_second, FIRST_BLOCKS * DEPTH, 0) + channels
        inside = channel < stride
        weight_row = tl.where(in_second, CHANNELS, 0) + channel
        source = x_ptr + offset + channel[None, :]
    return source, stride, weight_row, inside


@triton.jit  # type: ignore[untyped-decorator]
def add_product(  # type: ignore[no-untyped-def]
    sums,  # [ROWS, COLUMNS] float32
    a,  # [ROWS, DEPTH], a block of channels of gathered rows
    weight_ptr,
    slot,  # a number, or [DEPTH] where PACK > 1
    weight_row,  # [DEPTH]
    inside,  # [DEPTH]
    group,
    columns,  # [COLUMNS]
    VOLUME: tl.constexpr,
    CHANNELS: tl.constexpr,
    SECOND: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    MIRRORED: tl.constexpr,
    PACK: tl.constexpr,
    WHOLE: tl.constexpr,  # every weight exists
    PRECISION: tl.constexpr,
):
    """``sums + a @ w``: w the weights of channels that `row_addresses` found, and ``columns``."""
    if MIRRORED:
        slot = VOLUME - 1 - slot
    weights = weight_ptr + slot.to(tl.int64) * ((CHANNELS + SECOND) * GROUPS * OUTPUTS)
    there = inside[:, None] & (columns < OUTPUTS)[None, :]
    if PACK > 1:
        weights = weights[:, None]
    if TRANSPOSED:
        weights += (group * CHANNELS + weight_row)[:, None]
        weights += columns[None, :] * (GROUPS * CHANNELS)
    else:
        weights += weight_row[:, None] * (GROUPS * OUTPUTS)
        weights += group * OUTPUTS + columns[None, :]
    b = tl.load(weights) if WHOLE else tl.load(weights, mask=there, other=0.0)
    return tl.dot(a, b, sums, input_precision=PRECISION)


# Which pairs of a slot a program works on. Triplets lie slot by slot. Every slot is cut into chunks
# of at most L pairs; the chunks of slot 0 come first, then those of slot 1, ... The host knows the
# number of triplets T but not how many each slot has. So it launches as many programs as any split
# of T could need. Each looks its chunk up, and spare ones find an empty range.


def most_chunks(triplets: int, volume: int, chunk: int) -> int:
    """Chunks that ``triplets`` pairs in ``volume`` slots can have at most: ``floor(T / L) + K``."""
    return min(triplets, triplets // chunk + volume)


def slots_of(volume: int) -> int:
    """Power of two of at least K: that of 32 slots serves all small kernels, as one variant."""
    return max(32, power_of_two(volume))


@triton.jit  # type: ignore[untyped-decorator]
def slot_chunk(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    number,
    counts_ptr,  # [K] int64
    chunk,
    volume,
    SLOTS: tl.constexpr,
):
    """Slot, first and one-past-last pair of chunk ``number``."""
    slots = tl.arange(0, SLOTS)
    counts = tl.load(counts_ptr + slots, mask=slots < volume, other=0)
    chunks = (counts + chunk - 1) // chunk
    # slots that end before this chunk: all of them, padding included, for a spare program
    slot = tl.sum((tl.cumsum(chunks, 0) <= number).to(tl.int32), 0)
    before = slots < slot
    start = tl.sum(tl.where(before, counts, 0), 0)
    end = start + tl.sum(tl.where(slots == slot, counts, 0), 0)
    first = start + (number - tl.sum(tl.where(before, chunks, 0), 0)) * chunk
    return tl.minimum(slot, volume), tl.minimum(first, end), tl.minimum(first + chunk, end)


@triton.jit  # type: ignore[untyped-decorator]
def chunks_of_slot(  # type: ignore[no-untyped-def]
    slot,
    counts_ptr,  # [K] int64
    chunk,
    volume,
    SLOTS: tl.constexpr,
):
    """First and one-past-last chunk of a slot, both int64; the inverse of `slot_chunk`."""
    slots = tl.arange(0, SLOTS)
    counts = tl.load(counts_ptr + slots, mask=slots < volume, other=0)
    chunks = (counts + chunk - 1) // chunk
    first = tl.sum(tl.where(slots < slot, chunks, 0), 0)
    return first, first + tl.sum(tl.where(slots == slot, chunks, 0), 0)
