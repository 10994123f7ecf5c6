"""Output-stationary products over maps whose slots hold several inputs.

    sum over j of x[j] @ W[k] = (sum over j of x[j]) @ W[k]

A program owns some rows of one tile and a block of output channels, and adds in float32 registers.
Every output is written once: there are no atomics, and two runs give identical bits.

* Tiles whose steps are listed walk them as an implicit GEMM walks slots: in a step every row
  gathers one input of one slot, and tensor cores multiply it by the slot's weights. Slots, inputs
  of a slot and channels are one loop, so that the pipeline that gathers ahead never drains. That a
  slot is multiplied as often as its fullest row asks costs less than sums at the gather: those pass
  through registers, and no copy from global to shared memory adds.
* Tiles whose steps are not listed, as those of dense clouds, which would take many, add the inputs
  of every row and slot in float32 while they gather them, round the sum once and multiply it once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.geometry.slot_tiles import TILE_ROWS
from pcnn.kernels.conv_spec import NO_EPILOGUE, ConvSpec
from pcnn.kernels.epilogue import write_sums
from pcnn.kernels.gathered_product import (
    add_product,
    operand,
    precision_of,
    row_addresses,
    second_source,
)
from pcnn.kernels.gemm_blocks import GemmBlocks, default_blocks, parts_of
from pcnn.kernels.product_tiles import ProductShape, RowTiles
from pcnn.kernels.tf32 import tf32_allowed
from pcnn.kernels.triton_launch import TritonLauncher

#: Channels that are summed at the gather at once: they lie in registers that other tiles do
#: without, and few registers leave room for other programs.
SUMMED = 16


@triton.jit(do_not_specialize=["stored", "second_offset"])  # type: ignore[untyped-decorator]
def row_lists_kernel(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    x_ptr,  # [N_in, GROUPS * CHANNELS]
    weight_ptr,  # [VOLUME, C_in / GROUPS, C_out]
    tile_out,  # [tiles, TILE_ROWS] int32
    tile_starts,  # [tiles, VOLUME + 1, TILE_ROWS] int32
    tile_steps,  # [tiles + 1] int32
    step_slots,  # [stored] int32
    step_rows,  # [stored, TILE_ROWS] int32
    in_ptr,  # [T] int32
    out_ptr,  # [N_out, GROUPS * OUTPUTS]
    scale_ptr,
    shift_ptr,
    residual_ptr,
    stored,  # steps that there is room for
    second_offset,  # elements from x to the second source [N_in, SECOND]
    VOLUME: tl.constexpr,
    CHANNELS: tl.constexpr,
    SECOND: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    MIRRORED: tl.constexpr,
    SIDE: tl.constexpr,  # narrow groups that are one here
    RELU: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    ROWS: tl.constexpr,
    FIRST: tl.constexpr,
    REST: tl.constexpr,  # output channels that follow those of FIRST; 0 for none
    DEPTH: tl.constexpr,
    SUMMED: tl.constexpr,  # channels that are summed at the gather at once
    PACK: tl.constexpr,  # steps side by side; more than one where DEPTH = PACK * CHANNELS
    STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Some rows of one tile, one block of output channels of one group."""
    COLUMNS: tl.constexpr = FIRST + REST
    BLOCKS: tl.constexpr = (OUTPUTS + COLUMNS - 1) // COLUMNS
    PARTS: tl.constexpr = TILE_ROWS // ROWS
    FIRST_BLOCKS: tl.constexpr = (CHANNELS + DEPTH - 1) // DEPTH
    IN_BLOCKS: tl.constexpr = FIRST_BLOCKS + (SECOND + DEPTH - 1) // DEPTH
    EXACT: tl.constexpr = CHANNELS % DEPTH == 0 and SECOND % DEPTH == 0
    WHOLE: tl.constexpr = EXACT and OUTPUTS % COLUMNS == 0 and SIDE == 1 and PACK == 1
    SUMMED_BLOCKS: tl.constexpr = (CHANNELS + SUMMED - 1) // SUMMED + (
        SECOND + SUMMED - 1
    ) // SUMMED
    # programs of one tile follow each other: they gather the same rows
    program = tl.program_id(0)
    columns = program % BLOCKS * COLUMNS + tl.arange(0, FIRST)
    part = program // BLOCKS % PARTS
    tile = (program // (BLOCKS * PARTS)).to(tl.int64)
    group = tl.program_id(1)
    places = part * ROWS + tl.arange(0, ROWS)
    across = tl.arange(0, DEPTH) // CHANNELS  # which of the steps side by side a channel is of

    begin = tl.load(tile_steps + tile)
    end = tl.load(tile_steps + tile + 1)
    sums = tl.zeros([ROWS, FIRST], tl.float32)
    if REST > 0:
        others = program % BLOCKS * COLUMNS + FIRST + tl.arange(0, REST)
        other_sums = tl.zeros([ROWS, REST], tl.float32)
    if end <= stored:
        length = end - begin
        step_slots += begin
        rows_ptr = step_rows + begin.to(tl.int64) * TILE_ROWS + places
        for turn in tl.range(0, (length + PACK - 1) // PACK * IN_BLOCKS, num_stages=STAGES):
            if PACK == 1:
                slot = tl.load(step_slots + turn // IN_BLOCKS)
                rows = tl.load(rows_ptr + turn // IN_BLOCKS * TILE_ROWS)[:, None]
            else:
                step = turn * PACK + across  # [DEPTH]
                filled = step < length
                slot = tl.load(step_slots + step, mask=filled, other=0)
                listed = rows_ptr[:, None] + (step * TILE_ROWS)[None, :]
                rows = tl.load(listed, mask=filled[None, :], other=-1)
                # CHANNELS neighbours read one number: the hint allows one wide access
                rows = tl.max_constancy(rows, [1, CHANNELS])
            start = turn % IN_BLOCKS * DEPTH
            source, stride, weight_row, inside = row_addresses(
                x_ptr, start, group, second_offset, CHANNELS, SECOND, GROUPS, DEPTH, PACK
            )
            live = rows >= 0
            if PACK > 1:
                inside &= filled
                live &= filled[None, :]  # rows are -1 there; the mask keeps the accesses wide
            elif not EXACT:
                live &= inside[None, :]
            a = tl.load(source + rows.to(tl.int64) * stride, mask=live, other=0.0)
            sums = add_product(
                *(sums, a, weight_ptr, slot, weight_row, inside, group, columns),
                *(VOLUME, CHANNELS, SECOND, OUTPUTS, GROUPS, TRANSPOSED, MIRRORED),
                *(SIDE, PACK, WHOLE, PRECISION),
            )
            if REST > 0:
                other_sums = add_product(
                    *(other_sums, a, weight_ptr, slot, weight_row, inside, group, others),
                    *(VOLUME, CHANNELS, SECOND, OUTPUTS, GROUPS, TRANSPOSED, MIRRORED),
                    *(SIDE, PACK, WHOLE, PRECISION),
                )
    else:
        starts_ptr = tile_starts + tile * ((VOLUME + 1) * TILE_ROWS) + places
        for number in range(0, VOLUME):
            slot = tl.full([], number, tl.int32)
            before = tl.load(starts_ptr + slot * TILE_ROWS)
            fan_in = tl.load(starts_ptr + (slot + 1) * TILE_ROWS) - before
            most = tl.max(fan_in, 0)
            for turn in range(0, tl.where(most > 0, SUMMED_BLOCKS, 0)):
                source, stride, weight_row, inside = row_addresses(
                    x_ptr, turn * SUMMED, group, second_offset, CHANNELS, SECOND, GROUPS, SUMMED, 1
                )
                summed = tl.zeros([ROWS, SUMMED], tl.float32)
                for rank in range(0, most):
                    live = rank < fan_in  # beyond it, positions may exceed int32
                    rows = tl.load(in_ptr + (before + rank), mask=live, other=0)[:, None]
                    live = live[:, None] & inside[None, :]
                    a = tl.load(source + rows.to(tl.int64) * stride, mask=live, other=0.0)
                    summed += a.to(tl.float32)
                a = summed.to(x_ptr.dtype.element_ty)
                sums = add_product(
                    *(sums, a, weight_ptr, slot, weight_row, inside, group, columns),
                    *(VOLUME, CHANNELS, SECOND, OUTPUTS, GROUPS, TRANSPOSED, MIRRORED),
                    *(SIDE, 1, False, PRECISION),
                )
                if REST > 0:
                    other_sums = add_product(
                        *(other_sums, a, weight_ptr, slot, weight_row, inside, group, others),
                        *(VOLUME, CHANNELS, SECOND, OUTPUTS, GROUPS, TRANSPOSED, MIRRORED),
                        *(SIDE, 1, False, PRECISION),
                    )

    out_rows = tl.load(tile_out + tile * TILE_ROWS + places)
    write_sums(
        *(sums, out_ptr, out_rows, columns, group, scale_ptr, shift_ptr, residual_ptr),
        *(OUTPUTS, GROUPS, False, RELU),
    )
    if REST > 0:
        write_sums(
            *(other_sums, out_ptr, out_rows, others, group, scale_ptr, shift_ptr, residual_ptr),
            *(OUTPUTS, GROUPS, False, RELU),
        )


def launch_row_lists(
    x: Tensor,  # [N_in, C_in]
    weight: Tensor,  # [K, C_in / groups, C_out]
    layouts: Sequence[Tensor],
    n_out: int,
    spec: ConvSpec,
    tiles: RowTiles | None = None,
) -> Tensor:
    """``out[i] = sum over (i, j, k) of x[j] @ W[k]`` over row lists."""
    compute_dtype, (scale, shift, residual, relu) = spec.compute_dtype, spec.epilogue or NO_EPILOGUE
    shape = ProductShape.of(weight, spec)
    side, shape = shape.side_by_side, shape.packed()
    blocks = blocks_of(shape, layouts[0].shape[0], compute_dtype, tiles)
    x, weight = operand(x, compute_dtype), operand(weight, compute_dtype)
    skip, offset = spec.skip, 0
    if skip is not None:
        skip, offset = second_source(x, operand(skip, compute_dtype))
    out = torch.empty(n_out, shape.width, dtype=spec.out_dtype, device=x.device)
    residual = None if residual is None else residual.contiguous()
    programs = layouts[0].shape[0] * (TILE_ROWS // blocks.rows)
    programs *= -(-shape.outputs // blocks.channels_out)
    pack = 1
    if not shape.second and blocks.channels_in % shape.channels == 0:
        pack = blocks.channels_in // shape.channels
    _LAUNCH(
        (programs, shape.groups),
        (x, weight, *layouts, out, scale, shift, residual),
        (layouts[3].shape[0], offset),
        (
            *(shape.volume, shape.channels, shape.second, shape.outputs, shape.groups),
            *(shape.transposed, shape.mirrored, side, relu, TILE_ROWS),
            *(blocks.rows, *parts_of(blocks.channels_out), blocks.channels_in),
            *(SUMMED, pack, blocks.stages, precision_of(compute_dtype)),
        ),
        blocks.warps,
    )
    return out


def blocks_of(
    shape: ProductShape, number: int, compute_dtype: torch.dtype, tiles: RowTiles | None
) -> GemmBlocks:
    """Blocks of tiles that are given, or those of an implicit GEMM, whose steps are a tile's."""
    if tiles is not None:
        return GemmBlocks(tiles.rows, tiles.columns, tiles.depth, 1, tiles.warps, tiles.stages)
    exact = compute_dtype == torch.float32 and not tf32_allowed()
    sizes = shape.channels, shape.outputs, number, shape.volume
    return default_blocks(*sizes, compute_dtype, exact, shape.second)


_LAUNCH = TritonLauncher(row_lists_kernel)
