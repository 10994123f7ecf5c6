"""Output-stationary implicit GEMM over the row lists of tiles.

A program owns the rows of one tile and a block of output channels. It walks the slots that some row
of the tile fills, and for each of them the input channels block by block: gathers the rows of the
features, multiplies them by the slot's weights on the tensor cores, and adds in float32 registers.
Every output is written once, so there are no atomics, and two runs give identical bits.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.geometry.slot_tiles import TILE_ROWS
from pcnn.kernels.conv_spec import NO_EPILOGUE, ConvSpec
from pcnn.kernels.epilogue import finish, write_sums
from pcnn.kernels.gathered_product import (
    add_product,
    operand,
    precision_of,
    row_addresses,
    second_source,
)
from pcnn.kernels.gemm_blocks import GemmBlocks, default_blocks, parts_of
from pcnn.kernels.product_tiles import joined_groups, side_by_side
from pcnn.kernels.triton_launch import TritonLauncher, Variant


@triton.jit(do_not_specialize=["n_out", "second_offset"])  # type: ignore[untyped-decorator]
def implicit_gemm(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    x,  # [N_in, GROUPS * C_IN]
    weight,  # [VOLUME, C_IN + C_SECOND, GROUPS * C_OUT]; TRANSPOSED [VOLUME, C_OUT, GROUPS * C_IN]
    out,  # [N_out, GROUPS * C_OUT]; float32 partial sums [SPLIT, N_out, ...] if SPLIT > 1
    tile_out,  # [tiles, TILE_ROWS] int32, output row of every place; -1 where there is none
    tile_slots,  # [tiles, WIDTH] int32
    tile_counts,  # [tiles] int32, slots that the tile fills
    tile_rows,  # [tiles, WIDTH, TILE_ROWS] int32, input rows; -1 where a slot is empty
    scale,  # [GROUPS * C_OUT] or None
    shift,  # [GROUPS * C_OUT] or None
    residual,  # [N_out, GROUPS * C_OUT] or None
    n_out,
    second_offset,  # elements from x to the second source [N_in, C_SECOND]
    C_IN: tl.constexpr,
    C_SECOND: tl.constexpr,
    C_OUT: tl.constexpr,
    GROUPS: tl.constexpr,
    VOLUME: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    MIRRORED: tl.constexpr,
    ADDS: tl.constexpr,  # add to what is there: the sections of a kernel meet in the output
    RELU: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_REST: tl.constexpr,  # output channels that follow those of BLOCK_OUT; 0 for none
    BLOCK_IN: tl.constexpr,
    SPLIT: tl.constexpr,
    PACK: tl.constexpr,  # slots of a step, side by side; more than one where BLOCK_IN = PACK * C_IN
    STAGES: tl.constexpr,
):
    """The rows ``part`` of one tile, and one block of output channels."""
    COLUMNS: tl.constexpr = BLOCK_OUT + BLOCK_REST
    OUT_BLOCKS: tl.constexpr = (C_OUT + COLUMNS - 1) // COLUMNS
    PARTS: tl.constexpr = TILE_ROWS // BLOCK_ROWS
    FIRST_BLOCKS: tl.constexpr = (C_IN + BLOCK_IN - 1) // BLOCK_IN
    IN_BLOCKS: tl.constexpr = FIRST_BLOCKS + (C_SECOND + BLOCK_IN - 1) // BLOCK_IN
    EXACT: tl.constexpr = C_IN % BLOCK_IN == 0 and C_SECOND % BLOCK_IN == 0
    WHOLE: tl.constexpr = EXACT and C_OUT % COLUMNS == 0 and PACK == 1

    # programs of one tile follow each other: they gather the same rows
    program = tl.program_id(0)
    out_block = program % OUT_BLOCKS
    part = program // OUT_BLOCKS % PARTS
    split = program // (OUT_BLOCKS * PARTS) % SPLIT
    tile = program // (OUT_BLOCKS * PARTS * SPLIT)
    group = tl.program_id(1)

    count = tl.load(tile_counts + tile)
    steps = (count + PACK - 1) // PACK * IN_BLOCKS
    if ADDS:  # noqa: SIM102 (what is known when compiling stands alone)
        if steps == 0:
            return
    share = (steps + SPLIT - 1) // SPLIT
    first = split * share
    last = tl.minimum(first + share, steps)

    columns = out_block * COLUMNS + tl.arange(0, BLOCK_OUT)  # [BLOCK_OUT]
    across = tl.arange(0, BLOCK_IN) // C_IN  # which of the slots side by side a channel is of
    places = part * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)  # [BLOCK_ROWS]
    lists = tile.to(tl.int64) * WIDTH
    list_rows = tile_rows + lists * TILE_ROWS + places
    sums = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
    if BLOCK_REST > 0:
        others = out_block * COLUMNS + BLOCK_OUT + tl.arange(0, BLOCK_REST)  # [BLOCK_REST]
        other_sums = tl.zeros((BLOCK_ROWS, BLOCK_REST), dtype=tl.float32)
    for step in tl.range(first, last, num_stages=STAGES):
        if PACK == 1:
            listed = step // IN_BLOCKS
            rows = tl.load(list_rows + listed * TILE_ROWS)[:, None]  # [BLOCK_ROWS, 1]
            slot = tl.load(tile_slots + lists + listed)
        else:
            listed = step * PACK + across  # [BLOCK_IN]
            filled = listed < count
            rows = tl.load(
                list_rows[:, None] + listed[None, :] * TILE_ROWS, mask=filled[None, :], other=-1
            )
            # C_IN neighbours read one number: the hint allows one wide access
            rows = tl.max_constancy(rows, [1, C_IN])  # [BLOCK_ROWS, BLOCK_IN]
            slot = tl.load(tile_slots + lists + listed, mask=filled, other=0)
        start = step % IN_BLOCKS * BLOCK_IN
        source, stride, weight_row, inside = row_addresses(
            x, start, group, second_offset, C_IN, C_SECOND, GROUPS, BLOCK_IN, PACK
        )
        live = rows >= 0
        if PACK > 1:
            inside &= filled
            live &= filled[None, :]  # rows are -1 there; the mask keeps the accesses wide
        elif not EXACT:
            live &= inside[None, :]
        a = tl.load(source + rows.to(tl.int64) * stride, mask=live, other=0.0)
        sums = add_product(
            *(sums, a, weight, slot, weight_row, inside, group, columns),
            *(VOLUME, C_IN, C_SECOND, C_OUT, GROUPS, TRANSPOSED, MIRRORED),
            *(1, PACK, WHOLE, PRECISION),
        )
        if BLOCK_REST > 0:
            other_sums = add_product(
                *(other_sums, a, weight, slot, weight_row, inside, group, others),
                *(VOLUME, C_IN, C_SECOND, C_OUT, GROUPS, TRANSPOSED, MIRRORED),
                *(1, PACK, WHOLE, PRECISION),
            )

    out_rows = tl.load(tile_out + tile.to(tl.int64) * TILE_ROWS + places)
    if SPLIT > 1:
        out += split * n_out.to(tl.int64) * (GROUPS * C_OUT)
    write_sums(
        *(sums, out, out_rows, columns, group, scale, shift, residual),
        *(C_OUT, GROUPS, ADDS, RELU),
    )
    if BLOCK_REST > 0:
        write_sums(
            *(other_sums, out, out_rows, others, group, scale, shift, residual),
            *(C_OUT, GROUPS, ADDS, RELU),
        )


def launch_implicit_gemm(
    x: Tensor,  # [N_in, C_in]
    weight: Tensor,  # [K, C_in / groups, C_out]
    layouts: Sequence[Tensor],
    n_out: int,
    spec: ConvSpec,
    blocks: GemmBlocks | None = None,
) -> Tensor:
    """``out[i] = sum over (i, j, k) of x[j] @ W[k]`` over the row lists of tiles."""
    groups, transposed, mirrored, compute_dtype, out_dtype, epilogue, skip, _ = spec
    scale, shift, residual, relu = epilogue or NO_EPILOGUE
    tile_out, tile_slots, tile_counts, tile_rows = layouts
    adds = tile_counts.shape[0] > -(-n_out // TILE_ROWS)  # a row has places in several sections
    x, weight = operand(x, compute_dtype), operand(weight, compute_dtype)
    offset = c_second = 0
    if skip is not None:
        skip, offset = second_source(x, operand(skip, compute_dtype))
        c_second = skip.shape[1]
    precision = precision_of(compute_dtype)
    exact = compute_dtype == torch.float32 and precision == "ieee"
    if groups > 1 and not exact:  # narrow groups would leave tensor cores idle
        width = max(weight.shape[1], weight.shape[2] // groups)
        together = side_by_side(groups, width)
        if together > 1:
            weight, groups = joined_groups(weight, groups, together), groups // together
    sizes = x.shape[1], c_second, weight.shape, tile_slots.shape, groups
    kind = transposed, mirrored, adds, relu, compute_dtype, precision
    variant, programs, channels, split = _cut(blocks, *sizes, *kind)
    if adds:
        out = torch.zeros(n_out, channels, dtype=torch.float32, device=x.device)
    elif split > 1:
        out = torch.empty(split, n_out, channels, dtype=torch.float32, device=x.device)
    else:
        out = torch.empty(n_out, channels, dtype=out_dtype, device=x.device)
    if residual is not None:
        residual = residual.contiguous()
    # what follows the sums waits until they are complete
    later = adds or split > 1
    now = (None, None, None) if later else (scale, shift, residual)
    variant(
        (programs, groups),
        (x, weight, out, tile_out, tile_slots, tile_counts, tile_rows, *now),
        (n_out, offset),
    )
    return finish(out, out_dtype, epilogue) if later else out


class _Cut(NamedTuple):
    """A launch without its tensors; ``programs`` are those of one group."""

    variant: Variant
    programs: int
    channels: int
    split: int


@functools.lru_cache(maxsize=4096)
def _cut(
    blocks: GemmBlocks | None,
    channels_in: int,
    c_second: int,
    weight: tuple[int, ...],
    slots: tuple[int, ...],
    groups: int,
    transposed: bool,
    mirrored: bool,
    adds: bool,
    relu: bool,
    compute_dtype: torch.dtype,
    precision: str,
) -> _Cut:
    """How a launch of these sizes is cut: the same for every call of a layer on a map."""
    (volume, rows, columns), (tiles, width) = weight, slots
    c_in, c_out = channels_in // groups, rows if transposed else columns // groups
    if blocks is None:
        # all operands are 16 bits wide, or precision decides
        exact = precision == "ieee"
        blocks = default_blocks(c_in, c_out, tiles, volume, compute_dtype, exact, c_second, adds)
    split = 1 if adds else blocks.split
    pack = 1 if c_second else max(1, blocks.channels_in // c_in)
    if pack * c_in != blocks.channels_in:
        pack = 1
    constants = (
        *(c_in, c_second, c_out, groups, volume, width, TILE_ROWS),
        *(transposed, mirrored, adds, relu and not (adds or split > 1), precision),
        *(blocks.rows, *parts_of(blocks.channels_out), blocks.channels_in),
        *(split, pack, blocks.stages),
    )
    programs = tiles * (TILE_ROWS // blocks.rows) * -(-c_out // blocks.channels_out) * split
    variant = _LAUNCHER.variant(constants, blocks.warps)
    return _Cut(variant, programs, groups * c_out, split)


_LAUNCHER = TritonLauncher(implicit_gemm)
