"""Sums over pairs by slot: a program multiplies a chunk of one slot's pairs and adds atomically.

The fetch-on-demand dataflow of TorchSparse++ and of Spira (section 5.4), as PointCNN++'s code runs
it: products stay in float32 registers over all input channels, and every (chunk, column tile) is
added to the output once. The host needs no number that only the device knows.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.gathered_product import (
    COMPUTE,
    gathered_product,
    most_chunks,
    precision_of,
    row_tile,
    slot_chunk,
    slot_weight,
    slots_of,
    weight_tile,
)
from pcnn.kernels.product_tiles import ProductShape, chunk_tiles
from pcnn.kernels.triton_launch import TritonLauncher


@triton.jit  # type: ignore[untyped-decorator]
def add_sums(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    rows_ptr,  # [ROWS], rows of the sums
    live,  # [ROWS] bool
    tile,  # [ROWS, COLUMNS] float32
    start,
    OUTPUTS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Add a tile, 32 columns at once, to rows of the sums from channel ``start`` of a group on."""
    if COLUMNS <= 32:
        columns = start + tl.arange(0, COLUMNS)
        there = live[:, None] & (columns < OUTPUTS)[None, :]
        tl.atomic_add(rows_ptr[:, None] + columns[None, :], tile, mask=there, sem="relaxed")
    else:
        half: tl.constexpr = COLUMNS // 2
        halves = tl.permute(tl.reshape(tile, [tile.shape[0], 2, half]), [0, 2, 1])
        left, right = tl.split(halves)
        add_sums(rows_ptr, live, left, start, OUTPUTS, half)
        add_sums(rows_ptr, live, right, start + half, OUTPUTS, half)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["listed"], do_not_specialize_on_alignment=["in_ptr", "out_ptr"]
)
def weight_stationary_kernel(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    x_ptr,  # [N_in, G * CHANNELS]
    second_ptr,  # [N_in, SECOND] or None
    weight_ptr,  # [K, C_in / G, C_out]
    in_ptr,  # [T] int32
    out_ptr,  # [T] int32
    counts_ptr,  # [S] int64
    slots_ptr,  # [S] int32, or None: slot s of the list is slot s of the kernel
    sums_ptr,  # [N_out, G * OUTPUTS] float32
    listed,  # slots of the list
    VOLUME: tl.constexpr,
    LISTED: tl.constexpr,  # a power of two that holds them
    BOTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    SECOND: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    SIDE: tl.constexpr,  # narrow groups that are one here
    TRANSPOSED: tl.constexpr,
    MIRRORED: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One chunk of pairs, one tile of output channels, one of the directions of its pairs.

    ``BOTH``: every pair (i, j) of slot k stands for (j, i) of slot ``K - 1 - k`` too. Each
    direction is a program of its own, so that neither holds two accumulators.
    """
    tiles: tl.constexpr = (OUTPUTS + COLUMNS - 1) // COLUMNS
    both: tl.constexpr = CHANNELS + SECOND  # contracted channels
    program = tl.program_id(0)
    # tiles and directions of a chunk are neighbours: they gather the same rows while L2 has them
    tile = program % tiles
    group = (program // tiles) % GROUPS
    program = program // (tiles * GROUPS)
    backwards = False
    if BOTH:
        backwards = program % 2 == 1
        program = program // 2
    place, first, last = slot_chunk(program, counts_ptr, CHUNK, listed, LISTED)
    if first >= last:  # a spare program
        return
    slot = place
    if slots_ptr is not None:
        slot = tl.load(slots_ptr + place)
    if BOTH:
        slot = tl.where(backwards, VOLUME - 1 - slot, slot)
    if MIRRORED:
        slot = VOLUME - 1 - slot
    matrix_ptr = slot_weight(weight_ptr, slot, group, both, OUTPUTS, GROUPS, TRANSPOSED, SIDE)
    columns = tile * COLUMNS + tl.arange(0, COLUMNS)
    held: tl.constexpr = SECOND == 0 and CHANNELS <= DEPTH
    if held:
        weight = weight_tile(
            matrix_ptr, 0, columns, both, OUTPUTS, GROUPS, TRANSPOSED, DEPTH, COMPUTE, SIDE
        )
    lanes = tl.arange(0, ROWS)
    for start in range(0, (last - first).to(tl.int32), ROWS):
        pairs = first + start + lanes
        live = pairs < last
        inputs = tl.load(in_ptr + pairs, mask=live, other=0).to(tl.int64)
        outputs = tl.load(out_ptr + pairs, mask=live, other=0).to(tl.int64)
        if BOTH:
            inputs, outputs = (
                tl.where(backwards, outputs, inputs),
                tl.where(backwards, inputs, outputs),
            )
        sums = tl.zeros([ROWS, COLUMNS], tl.float32)
        if held:
            rows = row_tile(x_ptr, inputs, live, 0, group, CHANNELS, GROUPS, DEPTH, COMPUTE)
            sums = tl.dot(rows, weight, sums, input_precision=PRECISION)
        else:
            for source in tl.static_range(1 + (SECOND > 0)):
                sums = gathered_product(
                    *(sums, second_ptr if source else x_ptr, inputs, live, group),
                    *(matrix_ptr + source * CHANNELS * OUTPUTS, columns),
                    *(SECOND if source else CHANNELS, OUTPUTS, GROUPS, TRANSPOSED),
                    *(DEPTH, COMPUTE, PRECISION, SIDE),  # SIDE is 1 beside a second source
                )
        rows_ptr = sums_ptr + outputs * (GROUPS * OUTPUTS) + group * OUTPUTS
        add_sums(rows_ptr, live, sums, tile * COLUMNS, OUTPUTS, COLUMNS)


def add_pairs(
    sums: Tensor,  # [N_out, C_out] float32, added to
    x: Tensor,  # [N_in, C_in]
    weight: Tensor,  # [K, C_in / groups, C_out]
    in_index: Tensor,  # [T] int32, rows j, by slot
    out_index: Tensor,  # [T] int32, rows i
    counts: Tensor,  # [S] int64, pairs of every listed slot
    slots: Tensor | None,  # [S] int32, the listed slots; None: the first S
    both: bool,
    shape: ProductShape,
    spec: ConvSpec,
) -> None:
    """Add ``x[j] @ W[k]`` to ``sums[i]`` over pairs listed by slot."""
    side, shape = shape.side_by_side, shape.packed()
    compute, precision = COMPUTE[spec.compute_dtype], precision_of(spec.compute_dtype)
    pairs = (1 + both) * in_index.shape[0]
    tiles = chunk_tiles(shape, pairs, spec.compute_dtype)
    listed = counts.shape[0]
    chunks = most_chunks(in_index.shape[0], listed, tiles.chunk)
    programs = chunks * (1 + both) * shape.groups * -(-shape.outputs // tiles.columns)
    _LAUNCH(
        (programs, 1),
        (x, spec.skip, weight, in_index, out_index, counts, slots, sums),
        (listed,),
        (
            *(shape.volume, slots_of(listed), both, shape.channels, shape.second, shape.outputs),
            *(shape.groups, side, shape.transposed, shape.mirrored),
            *(tiles.chunk, tiles.rows, tiles.columns, tiles.depth, compute, precision),
        ),
        tiles.warps,
        tiles.stages,
    )


_LAUNCH = TritonLauncher(weight_stationary_kernel)
