"""Output-stationary products that sum the inputs of a slot while they gather them.

    sum over j of x[j] @ W[k] = (sum over j of x[j]) @ W[k]

A program owns some rows of one tile and a block of output channels. It walks the steps of the tile:
in each, every row gathers up to two inputs of one slot, which are added and multiplied by the
slot's weights on the tensor cores. Slots, inputs of a slot and channels are one loop, so that the
pipeline that gathers ahead never drains. Every output is written once: there are no atomics, and
two runs give identical bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.geometry.layouts import TILE_ROWS
from pcnn.kernels.finished_sums import with_epilogue
from pcnn.kernels.gathered_product import beside, operand, precision_of
from pcnn.kernels.product_tiles import ProductShape, RowTiles
from pcnn.kernels.triton_launch import TritonLauncher


@triton.jit(do_not_specialize=["second_offset"])  # type: ignore[untyped-decorator]
def row_lists_kernel(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    x_ptr,  # [N_in, GROUPS * CHANNELS]
    weight_ptr,  # [VOLUME, C_in / GROUPS, C_out]
    tile_out,  # [tiles, TILE_ROWS] int32
    tile_starts,  # [tiles, VOLUME + 1, TILE_ROWS] int32
    tile_steps,  # [tiles + 1] int32
    steps_ptr,  # [S, 2] int32, slot and rank of the first input
    in_ptr,  # [T] int32
    out_ptr,  # [N_out, GROUPS * OUTPUTS]
    scale_ptr,
    shift_ptr,
    residual_ptr,
    second_offset,  # elements from x to the second source [N_in, SECOND]
    VOLUME: tl.constexpr,
    CHANNELS: tl.constexpr,
    SECOND: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    MIRRORED: tl.constexpr,
    RELU: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Some rows of one tile, one block of output channels of one group."""
    BLOCKS: tl.constexpr = (OUTPUTS + COLUMNS - 1) // COLUMNS
    PARTS: tl.constexpr = TILE_ROWS // ROWS
    FIRST_BLOCKS: tl.constexpr = (CHANNELS + DEPTH - 1) // DEPTH
    IN_BLOCKS: tl.constexpr = FIRST_BLOCKS + (SECOND + DEPTH - 1) // DEPTH
    EXACT: tl.constexpr = CHANNELS % DEPTH == 0 and SECOND % DEPTH == 0
    WHOLE: tl.constexpr = OUTPUTS % COLUMNS == 0
    # programs of one tile follow each other: they gather the same rows
    program = tl.program_id(0)
    columns = program % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)
    part = program // BLOCKS % PARTS
    tile = (program // (BLOCKS * PARTS)).to(tl.int64)
    group = tl.program_id(1)
    places = part * ROWS + tl.arange(0, ROWS)
    channels = tl.arange(0, DEPTH)
    starts_ptr = tile_starts + tile * ((VOLUME + 1) * TILE_ROWS) + places

    first = tl.load(tile_steps + tile)
    number = (tl.load(tile_steps + tile + 1) - first) * IN_BLOCKS
    steps_ptr += first.to(tl.int64) * 2
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for turn in tl.range(0, number, num_stages=STAGES):
        slot = tl.load(steps_ptr + turn // IN_BLOCKS * 2)
        rank = tl.load(steps_ptr + turn // IN_BLOCKS * 2 + 1)
        begin = tl.load(starts_ptr + slot * TILE_ROWS)
        fan_in = tl.load(starts_ptr + (slot + 1) * TILE_ROWS) - begin
        # places beyond the last input may exceed int32: nothing is read there
        inputs = in_ptr + (begin + rank)
        row = tl.load(inputs, mask=rank < fan_in, other=-1)[:, None]
        other = tl.load(inputs + 1, mask=rank + 1 < fan_in, other=-1)[:, None]
        if MIRRORED:
            slot = VOLUME - 1 - slot

        start = turn % IN_BLOCKS * DEPTH  # first channel of the block within its source
        channel = start + channels
        inside = channel < CHANNELS
        weight_row = channel
        if SECOND == 0:
            source = x_ptr + (group * CHANNELS + channel)[None, :]
            stride = GROUPS * CHANNELS
        else:
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
        weights = weight_ptr + slot.to(tl.int64) * ((CHANNELS + SECOND) * GROUPS * OUTPUTS)
        if TRANSPOSED:
            weights += (group * CHANNELS + weight_row)[:, None]
            weights += columns[None, :] * (GROUPS * CHANNELS)
        else:
            weights += weight_row[:, None] * (GROUPS * OUTPUTS)
            weights += group * OUTPUTS + columns[None, :]

        there, also = row >= 0, other >= 0
        if not EXACT:
            there &= inside[None, :]
            also &= inside[None, :]
        a = tl.load(source + row.to(tl.int64) * stride, mask=there, other=0.0)
        # the sum of two numbers, rounded once: what rounding their float32 sum gives
        a += tl.load(source + other.to(tl.int64) * stride, mask=also, other=0.0)
        if EXACT and WHOLE:
            b = tl.load(weights)
        else:
            b = tl.load(weights, inside[:, None] & (columns < OUTPUTS)[None, :], 0.0)
        sums = tl.dot(a, b, sums, input_precision=PRECISION)

    out_rows = tl.load(tile_out + tile * TILE_ROWS + places)
    written = (out_rows >= 0)[:, None] & (columns < OUTPUTS)[None, :]
    shown = group * OUTPUTS + columns[None, :]
    targets = out_rows.to(tl.int64)[:, None] * (GROUPS * OUTPUTS) + shown
    sums = with_epilogue(sums, targets, shown, written, scale_ptr, shift_ptr, residual_ptr, RELU)
    tl.store(out_ptr + targets, sums.to(out_ptr.dtype.element_ty), mask=written)


def launch_row_lists(
    x: Tensor,
    weight: Tensor,
    layouts: Sequence[Tensor],
    n_out: int,
    shape: ProductShape,
    compute_dtype: torch.dtype,
    tiles: RowTiles,
    out_dtype: torch.dtype,
    second: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    residual: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """``out[i] = sum over (i, j, k) of x[j] @ W[k]`` over row lists.

    Args:
        x: ``[N_in, C_in]``.
        weight: ``[K, C_in / groups, C_out]``.
        layouts: ``row_lists`` of the map.
        n_out: rows of the output.
        shape: of the product.
        compute_dtype: float16, bfloat16 or float32, which operands are rounded to.
        tiles: how the work is cut; ``rows`` divides `TILE_ROWS`.
        out_dtype: dtype of the result.
        second: ``[N_in, C_2]``, channels that follow those of ``x``; at groups = 1.
        scale: ``[C_out]``, multiplies the sums.
        shift: ``[C_out]``, added to them.
        residual: ``[n_out, C_out]``, added to them.
        relu: whether ReLU follows.

    Returns:
        ``[n_out, C_out]`` in ``out_dtype``.
    """
    x, weight = operand(x, compute_dtype), operand(weight, compute_dtype)
    offset = 0
    if second is not None:
        second, offset = beside(x, operand(second, compute_dtype))
    out = torch.empty(n_out, shape.width, dtype=out_dtype, device=x.device)
    residual = None if residual is None else residual.contiguous()
    programs = layouts[0].shape[0] * (TILE_ROWS // tiles.rows) * -(-shape.outputs // tiles.columns)
    _LAUNCH(
        (programs, shape.groups),
        (x, weight, *layouts, out, scale, shift, residual),
        (offset,),
        (
            *(shape.volume, shape.channels, shape.second, shape.outputs, shape.groups),
            *(shape.transposed, shape.mirrored, relu, TILE_ROWS),
            *(tiles.rows, tiles.columns, tiles.depth, tiles.stages, precision_of(compute_dtype)),
        ),
        tiles.warps,
    )
    return out


_LAUNCH = TritonLauncher(row_lists_kernel)
