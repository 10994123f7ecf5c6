"""Output-stationary products that sum the inputs of a slot while they gather them.

    sum over j of x[j] @ W[k] = (sum over j of x[j]) @ W[k]

A program owns some rows of one tile and a block of output channels. For each slot that the tile
fills, it adds the inputs of every row in float32, rounds the sums once, and multiplies them by the
slot's weights on the tensor cores: however many inputs a slot holds, it is one product a row. Every
output is written once, so there are no atomics, and two runs give identical bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.geometry.layouts import TILE_ROWS
from pcnn.kernels.finished_sums import with_epilogue
from pcnn.kernels.gathered_product import row_tile, slot_weight, weight_tile
from pcnn.kernels.product_tiles import ProductShape, RowTiles
from pcnn.kernels.triton_launch import TritonLauncher

#: Inputs of a slot that are gathered at once: most rows of a scan have no more.
RANKS = 2


@triton.jit  # type: ignore[untyped-decorator]
def summed_rows(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    x_ptr,
    in_ptr,  # [T] int32
    starts,  # [ROWS] int32
    ends,  # [ROWS] int32
    fan_in,
    start,
    group,
    CHANNELS: tl.constexpr,
    GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    RANKS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """``[ROWS, DEPTH]`` float32: sums of the features that ranges of ``in_ptr`` name.

    Inputs are added in the order of their numbers, each rounded to ``COMPUTE`` first.
    """
    sums = tl.zeros([ROWS, DEPTH], tl.float32)
    counts = ends - starts
    for first in range(0, fan_in, RANKS):
        for rank in tl.static_range(RANKS):
            live = first + rank < counts  # places beyond the last may exceed int32
            places = starts + (first + rank)
            rows = tl.load(in_ptr + places, mask=live, other=0).to(tl.int64)
            tile = row_tile(x_ptr, rows, live, start, group, CHANNELS, GROUPS, DEPTH, COMPUTE)
            sums += tile.to(tl.float32)
    return sums


@triton.jit  # type: ignore[untyped-decorator]
def summed_product(  # type: ignore[no-untyped-def]
    sums,  # [ROWS, COLUMNS] float32
    x_ptr,
    in_ptr,
    starts,
    ends,
    fan_in,
    group,
    matrix_ptr,
    columns,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    RANKS: tl.constexpr,
    COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """``sums`` plus `summed_rows` times one slot of the weights."""
    for start in range(0, CHANNELS, DEPTH):
        rows = summed_rows(
            x_ptr,
            in_ptr,
            starts,
            ends,
            fan_in,
            start,
            group,
            CHANNELS,
            GROUPS,
            ROWS,
            DEPTH,
            RANKS,
            COMPUTE,
        )
        weight = weight_tile(
            matrix_ptr, start, columns, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED, DEPTH, COMPUTE
        )
        sums = tl.dot(rows.to(COMPUTE), weight, sums, input_precision=PRECISION)
    return sums


@triton.jit  # type: ignore[untyped-decorator]
def row_lists_kernel(  # type: ignore[no-untyped-def]
    x_ptr,  # [N_in, GROUPS * CHANNELS]
    second_ptr,  # [N_in, SECOND] or None
    weight_ptr,  # [VOLUME, C_in / GROUPS, C_out]
    tile_out,  # [tiles, TILE_ROWS] int32
    tile_slots,  # [tiles, VOLUME] int32
    tile_counts,  # [tiles] int32
    tile_fan_in,  # [tiles, VOLUME] int32
    tile_starts,  # [tiles, VOLUME + 1, TILE_ROWS] int32
    in_ptr,  # [T] int32
    out_ptr,  # [N_out, GROUPS * OUTPUTS]
    scale_ptr,
    shift_ptr,
    residual_ptr,
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
    RANKS: tl.constexpr,
    COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Some rows of one tile, one block of output channels of one group."""
    BLOCKS: tl.constexpr = (OUTPUTS + COLUMNS - 1) // COLUMNS
    PARTS: tl.constexpr = TILE_ROWS // ROWS
    both: tl.constexpr = CHANNELS + SECOND  # contracted channels
    # programs of one tile follow each other: they gather the same rows
    program = tl.program_id(0)
    columns = program % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)
    part = program // BLOCKS % PARTS
    tile = (program // (BLOCKS * PARTS)).to(tl.int64)
    group = tl.program_id(1)
    places = part * ROWS + tl.arange(0, ROWS)
    starts_ptr = tile_starts + tile * ((VOLUME + 1) * TILE_ROWS) + places

    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for listed in range(0, tl.load(tile_counts + tile)):
        slot = tl.load(tile_slots + tile * VOLUME + listed)
        if MIRRORED:
            slot = VOLUME - 1 - slot
        fan_in = tl.load(tile_fan_in + tile * VOLUME + listed)
        starts = tl.load(starts_ptr + listed * TILE_ROWS)
        ends = tl.load(starts_ptr + (listed + 1) * TILE_ROWS)
        matrix_ptr = slot_weight(weight_ptr, slot, group, both, OUTPUTS, GROUPS, TRANSPOSED)
        sums = summed_product(
            sums,
            x_ptr,
            in_ptr,
            starts,
            ends,
            fan_in,
            group,
            matrix_ptr,
            columns,
            CHANNELS,
            OUTPUTS,
            GROUPS,
            TRANSPOSED,
            ROWS,
            DEPTH,
            RANKS,
            COMPUTE,
            PRECISION,
        )
        if SECOND > 0:
            sums = summed_product(
                sums,
                second_ptr,
                in_ptr,
                starts,
                ends,
                fan_in,
                group,
                matrix_ptr + CHANNELS * OUTPUTS,
                columns,
                SECOND,
                OUTPUTS,
                GROUPS,
                TRANSPOSED,
                ROWS,
                DEPTH,
                RANKS,
                COMPUTE,
                PRECISION,
            )

    out_rows = tl.load(tile_out + tile * TILE_ROWS + places)
    written = (out_rows >= 0)[:, None] & (columns < OUTPUTS)[None, :]
    channels = group * OUTPUTS + columns[None, :]
    targets = out_rows.to(tl.int64)[:, None] * (GROUPS * OUTPUTS) + channels
    sums = with_epilogue(sums, targets, channels, written, scale_ptr, shift_ptr, residual_ptr, RELU)
    tl.store(out_ptr + targets, sums.to(out_ptr.dtype.element_ty), mask=written)


def launch_row_lists(
    x: Tensor,
    weight: Tensor,
    layouts: Sequence[Tensor],
    n_out: int,
    shape: ProductShape,
    compute: Any,
    precision: str,
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
        compute: Triton's dtype of the operands.
        precision: ``ieee`` or ``tf32``.
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
    out = torch.empty(n_out, shape.width, dtype=out_dtype, device=x.device)
    second = None if second is None else second.contiguous()
    residual = None if residual is None else residual.contiguous()
    programs = layouts[2].shape[0] * (TILE_ROWS // tiles.rows) * -(-shape.outputs // tiles.columns)
    _LAUNCH(
        (programs, shape.groups),
        (x.contiguous(), second, weight.contiguous(), *layouts, out, scale, shift, residual),
        (),
        (
            *(shape.volume, shape.channels, shape.second, shape.outputs, shape.groups),
            *(shape.transposed, shape.mirrored, relu, TILE_ROWS),
            *(tiles.rows, tiles.columns, tiles.depth, RANKS, compute, precision),
        ),
        tiles.warps,
        tiles.stages,
    )
    return out


_LAUNCH = TritonLauncher(row_lists_kernel)
