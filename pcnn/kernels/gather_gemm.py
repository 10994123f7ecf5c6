"""Output-stationary products over the steps of tiles (`pcnn.geometry.tile_steps`).

A program owns some rows of one tile and a block of output channels. It walks the steps of the tile,
and for each of them the input channels block by block: gathers the rows of the features, multiplies
them by the slot's weights on the tensor cores, and adds in float32 registers. Where slots hold
several inputs,

    sum over j of x[j] @ W[k] = (sum over j of x[j]) @ W[k]

would allow one product a slot. That a slot is multiplied as often as its fullest row asks costs
less than sums at the gather: those pass through registers, and no copy from global to shared memory
adds. Tiles whose steps are not listed, as those of dense clouds, which would take many, are summed
so: in float32 while they are gathered, rounded once and multiplied once.

Every output is written once, so there are no atomics, and two runs give identical bits; sections of
a kernel are the exception: they meet in the output.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.geometry.tile_steps import TILE_ROWS
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

#: Channels that are summed at the gather at once: they lie in registers that other tiles do
#: without, and few registers leave room for other programs.
SUMMED = 16


@triton.jit(do_not_specialize=["n_out", "second_offset"])  # type: ignore[untyped-decorator]
def gather_gemm(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    x,  # [N_in, GROUPS * C_IN]
    weight,  # [VOLUME, C_IN + C_SECOND, GROUPS * C_OUT]; TRANSPOSED [VOLUME, C_OUT, GROUPS * C_IN]
    out,  # [N_out, GROUPS * C_OUT]; float32 partial sums [SPLIT, N_out, ...] if SPLIT > 1
    tile_out,  # [tiles, TILE_ROWS] int32, output row of every place; -1 where there is none
    tile_begin,  # [tiles] int32, first step; -1 where the steps of a tile are not listed
    tile_end,  # [tiles] int32
    step_slots,  # [steps] int32
    step_rows,  # [steps, TILE_ROWS] int32, input rows; -1 where a slot is empty
    tile_starts,  # [tiles, VOLUME + 1, TILE_ROWS] int32; None where all steps are listed
    inputs,  # [T] int32, that tile_starts counts in
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
    SUMMED: tl.constexpr,
    SPLIT: tl.constexpr,
    PACK: tl.constexpr,  # steps side by side; more than one where BLOCK_IN = PACK * C_IN
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
    tile = (program // (OUT_BLOCKS * PARTS * SPLIT)).to(tl.int64)
    group = tl.program_id(1)

    begin = tl.load(tile_begin + tile)
    count = tl.load(tile_end + tile) - begin
    turns = (count + PACK - 1) // PACK * IN_BLOCKS
    if ADDS:  # noqa: SIM102 (what is known when compiling stands alone)
        if turns == 0:
            return
    share = (turns + SPLIT - 1) // SPLIT
    first = split * share
    last = tl.minimum(first + share, turns)

    columns = out_block * COLUMNS + tl.arange(0, BLOCK_OUT)  # [BLOCK_OUT]
    across = tl.arange(0, BLOCK_IN) // C_IN  # which of the steps side by side a channel is of
    places = part * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)  # [BLOCK_ROWS]
    slots = step_slots + begin
    list_rows = step_rows + begin.to(tl.int64) * TILE_ROWS + places
    sums = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
    if BLOCK_REST > 0:
        others = out_block * COLUMNS + BLOCK_OUT + tl.arange(0, BLOCK_REST)  # [BLOCK_REST]
        other_sums = tl.zeros((BLOCK_ROWS, BLOCK_REST), dtype=tl.float32)
    for turn in tl.range(first, last, num_stages=STAGES):
        if PACK == 1:
            step = turn // IN_BLOCKS
            rows = tl.load(list_rows + step * TILE_ROWS)[:, None]  # [BLOCK_ROWS, 1]
            slot = tl.load(slots + step)
        else:
            step = turn * PACK + across  # [BLOCK_IN]
            filled = step < count
            rows = tl.load(
                list_rows[:, None] + step[None, :] * TILE_ROWS, mask=filled[None, :], other=-1
            )
            # C_IN neighbours read one number: the hint allows one wide access
            rows = tl.max_constancy(rows, [1, C_IN])  # [BLOCK_ROWS, BLOCK_IN]
            slot = tl.load(slots + step, mask=filled, other=0)
        start = turn % IN_BLOCKS * BLOCK_IN
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
            *(PACK, WHOLE, PRECISION),
        )
        if BLOCK_REST > 0:
            other_sums = add_product(
                *(other_sums, a, weight, slot, weight_row, inside, group, others),
                *(VOLUME, C_IN, C_SECOND, C_OUT, GROUPS, TRANSPOSED, MIRRORED),
                *(PACK, WHOLE, PRECISION),
            )

    if tile_starts is not None:
        SUMMED_BLOCKS: tl.constexpr = (C_IN + SUMMED - 1) // SUMMED + (
            C_SECOND + SUMMED - 1
        ) // SUMMED
        starts = tile_starts + tile * ((VOLUME + 1) * TILE_ROWS) + places
        # one program of those that share a tile
        for number in range(0, tl.where((begin < 0) & (split == 0), VOLUME, 0)):
            slot = tl.full([], number, tl.int32)
            before = tl.load(starts + slot * TILE_ROWS)
            fan_in = tl.load(starts + (slot + 1) * TILE_ROWS) - before
            most = tl.max(fan_in, 0)
            for turn in range(0, tl.where(most > 0, SUMMED_BLOCKS, 0)):
                source, stride, weight_row, inside = row_addresses(
                    x, turn * SUMMED, group, second_offset, C_IN, C_SECOND, GROUPS, SUMMED, 1
                )
                summed = tl.zeros([BLOCK_ROWS, SUMMED], tl.float32)
                for rank in range(0, most):
                    live = rank < fan_in  # beyond it, positions may exceed int32
                    rows = tl.load(inputs + (before + rank), mask=live, other=0)[:, None]
                    live = live[:, None] & inside[None, :]
                    a = tl.load(source + rows.to(tl.int64) * stride, mask=live, other=0.0)
                    summed += a.to(tl.float32)
                a = summed.to(x.dtype.element_ty)
                sums = add_product(
                    *(sums, a, weight, slot, weight_row, inside, group, columns),
                    *(VOLUME, C_IN, C_SECOND, C_OUT, GROUPS, TRANSPOSED, MIRRORED),
                    *(1, False, PRECISION),
                )
                if BLOCK_REST > 0:
                    other_sums = add_product(
                        *(other_sums, a, weight, slot, weight_row, inside, group, others),
                        *(VOLUME, C_IN, C_SECOND, C_OUT, GROUPS, TRANSPOSED, MIRRORED),
                        *(1, False, PRECISION),
                    )

    out_rows = tl.load(tile_out + tile * TILE_ROWS + places)
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


def launch_gather_gemm(
    x: Tensor,  # [N_in, C_in]
    weight: Tensor,  # [K, C_in / groups, C_out]
    layouts: Sequence[Tensor],
    n_out: int,
    spec: ConvSpec,
    blocks: GemmBlocks | None = None,
) -> Tensor:
    """``out[i] = sum over (i, j, k) of x[j] @ W[k]`` over the steps of tiles."""
    groups, transposed, mirrored, compute_dtype, out_dtype, epilogue, skip, _ = spec
    scale, shift, residual, relu = epilogue or NO_EPILOGUE
    tile_out, begin, end, slots, rows, *ranges = layouts
    tiles, several = tile_out.shape[0], ranges != []
    adds = tiles > -(-n_out // TILE_ROWS)  # a row has places in several sections
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
    sizes = x.shape[1], c_second, weight.shape, tiles, groups
    kind = transposed, mirrored, adds, several, relu, compute_dtype, precision
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
    steps = tile_out, begin, end, slots, rows, *(ranges or (None, None))
    variant((programs, groups), (x, weight, out, *steps, *now), (n_out, offset))
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
    tiles: int,
    groups: int,
    transposed: bool,
    mirrored: bool,
    adds: bool,
    several: bool,
    relu: bool,
    compute_dtype: torch.dtype,
    precision: str,
) -> _Cut:
    """How a launch of these sizes is cut: the same for every call of a layer on a map."""
    volume, rows, columns = weight
    c_in, c_out = channels_in // groups, rows if transposed else columns // groups
    if blocks is None:
        # all operands are 16 bits wide, or precision decides
        exact = precision == "ieee"
        kind = exact, c_second, adds, several
        blocks = default_blocks(c_in, c_out, tiles, volume, compute_dtype, *kind)
    split = 1 if adds else blocks.split
    pack = 1 if c_second else max(1, blocks.channels_in // c_in)
    if pack * c_in != blocks.channels_in:
        pack = 1
    constants = (
        *(c_in, c_second, c_out, groups, volume, TILE_ROWS),
        *(transposed, mirrored, adds, relu and not (adds or split > 1), precision),
        *(blocks.rows, *parts_of(blocks.channels_out), blocks.channels_in),
        *(SUMMED, split, pack, blocks.stages),
    )
    programs = tiles * (TILE_ROWS // blocks.rows) * -(-c_out // blocks.channels_out) * split
    variant = _LAUNCHER.variant(constants, blocks.warps)
    return _Cut(variant, programs, groups * c_out, split)


_LAUNCHER = TritonLauncher(gather_gemm)
