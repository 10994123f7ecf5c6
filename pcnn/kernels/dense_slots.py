"""Sums over some slots by output row: every tile of rows goes through all of them, without masks.

The output-stationary half of Spira's hybrid (section 5.4), for slots that most rows fill. No two
programs write one element: no atomics, no memory to clear. Without a table it is the plain product
of the central slot, at which every row of a submanifold map meets itself.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.conv_spec import NO_EPILOGUE, ConvSpec
from pcnn.kernels.epilogue import with_epilogue
from pcnn.kernels.gathered_product import (
    COMPUTE,
    operand,
    precision_of,
    row_tile,
    slot_weight,
    weight_tile,
)
from pcnn.kernels.product_tiles import ProductShape, Tiles, row_tiles
from pcnn.kernels.triton_launch import TritonLauncher


@triton.jit  # type: ignore[untyped-decorator]
def dense_sums(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    sums,  # [ROWS, COLUMNS] float32
    x_ptr,  # [N_in, G * CHANNELS]
    weight_ptr,  # [K, SLOT_CHANNELS, G * OUTPUTS]
    table_ptr,  # [N_out, D] int32, or None: row i meets row i
    slots_ptr,  # [D] int32, or None: the central slot alone
    outputs,  # [ROWS] int64
    exists,  # [ROWS] bool
    columns,  # [COLUMNS]
    group,
    dense,
    BEFORE: tl.constexpr,
    VOLUME: tl.constexpr,
    SLOT_CHANNELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    MIRRORED: tl.constexpr,
    DEPTH: tl.constexpr,
    COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add the dense slots' products with one source, whose weights follow ``BEFORE`` others."""
    # slots and channels in one loop, so that the pipeline does not drain between slots
    steps: tl.constexpr = (CHANNELS + DEPTH - 1) // DEPTH
    if table_ptr is None:
        total: tl.constexpr = steps
    else:
        total = dense * steps  # one variant for every threshold
    for step in range(0, total):
        place = step // steps
        start = (step % steps) * DEPTH
        if table_ptr is None:
            rows = outputs
            live = exists
            slot = tl.full([], VOLUME // 2, tl.int32)
        else:
            rows = tl.load(table_ptr + outputs * dense + place, mask=exists, other=-1).to(tl.int64)
            live = rows >= 0
            slot = tl.load(slots_ptr + place)
            if MIRRORED:
                slot = VOLUME - 1 - slot
        matrix_ptr = BEFORE * OUTPUTS + slot_weight(
            weight_ptr, slot, group, SLOT_CHANNELS, OUTPUTS, GROUPS, TRANSPOSED
        )
        inputs = row_tile(x_ptr, rows, live, start, group, CHANNELS, GROUPS, DEPTH, COMPUTE)
        weight = weight_tile(
            matrix_ptr, start, columns, CHANNELS, OUTPUTS, GROUPS, TRANSPOSED, DEPTH, COMPUTE
        )
        sums = tl.dot(inputs, weight, sums, input_precision=PRECISION)
    return sums


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["n_out", "dense"], do_not_specialize_on_alignment=["count_ptr"]
)
def dense_slots_kernel(  # type: ignore[no-untyped-def]
    x_ptr,  # [N_in, G * CHANNELS]
    second_ptr,  # [N_in, SECOND] or None
    weight_ptr,  # [K, C_in / G, C_out]
    table_ptr,  # [N_out, D] int32 or None
    slots_ptr,  # [D] int32 or None
    far_ptr,  # [N_out, G * OUTPUTS] float32 or None: sums of the other slots
    out_ptr,  # [N_out, G * OUTPUTS]
    scale_ptr,
    shift_ptr,
    residual_ptr,
    count_ptr,  # [1] int32 or None: rows that are wanted, of n_out
    n_out,
    dense,  # slots of the table
    VOLUME: tl.constexpr,
    CHANNELS: tl.constexpr,
    SECOND: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    MIRRORED: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One tile of output rows and channels, all dense slots."""
    tiles: tl.constexpr = (OUTPUTS + COLUMNS - 1) // COLUMNS
    program = tl.program_id(0)
    columns = (program % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    group = (program // tiles) % GROUPS
    first = (program // (tiles * GROUPS)).to(tl.int64) * ROWS
    if count_ptr is not None:
        n_out = tl.minimum(n_out, tl.load(count_ptr))
        if first >= n_out:
            return
    outputs = first + tl.arange(0, ROWS)
    exists = outputs < n_out
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for source in tl.static_range(1 + (SECOND > 0)):
        sums = dense_sums(
            *(sums, second_ptr if source else x_ptr, weight_ptr, table_ptr, slots_ptr),
            *(outputs, exists, columns, group, dense, source * CHANNELS, VOLUME),
            *(CHANNELS + SECOND, SECOND if source else CHANNELS, OUTPUTS, GROUPS),
            *(TRANSPOSED, MIRRORED, DEPTH, COMPUTE, PRECISION),
        )
    channels = group * OUTPUTS + columns[None, :]
    places = (outputs * (GROUPS * OUTPUTS))[:, None] + channels
    shown = (columns < OUTPUTS)[None, :]
    there = exists[:, None] & shown
    if far_ptr is not None:
        sums += tl.load(far_ptr + places, mask=there, other=0.0)
    sums = with_epilogue(
        sums, places, channels, shown, there, scale_ptr, shift_ptr, residual_ptr, RELU
    )
    tl.store(out_ptr + places, sums.to(out_ptr.dtype.element_ty), mask=there)


def write_dense(
    out: Tensor,  # [N_out, C_out] of any float dtype, written; far itself where that is float32
    x: Tensor,  # [N_in, C_in], contiguous
    weight: Tensor,  # [K, C_in / groups, C_out], contiguous
    table: Tensor | None,  # [N_out, D] int32, input row of every dense slot, -1 where it is empty
    slots: Tensor | None,  # [D] int32, slots of the table's columns
    shape: ProductShape,
    spec: ConvSpec,
    tiles: Tiles | None = None,
    far: Tensor | None = None,  # [N_out, C_out] float32, sums of the other slots
) -> None:
    """Write ``sum over dense slots of x[table[i, k]] @ W[k]`` to every row ``out[i]``."""
    scale, shift, residual, relu = spec.epilogue or NO_EPILOGUE
    compute, precision = COMPUTE[spec.compute_dtype], precision_of(spec.compute_dtype)
    tiles = tiles or row_tiles(shape, out.shape[0], spec.compute_dtype)
    n_out = out.shape[0]
    programs = -(-n_out // tiles.rows) * shape.groups * -(-shape.outputs // tiles.columns)
    residual = None if residual is None else residual.contiguous()
    _LAUNCH(
        (programs, 1),
        (x, spec.skip, weight, table, slots, far, out, scale, shift, residual, spec.rows),
        (n_out, 1 if table is None else table.shape[1]),
        (
            *(shape.volume, shape.channels, shape.second, shape.outputs, shape.groups),
            *(shape.transposed, shape.mirrored, relu),
            *(tiles.rows, tiles.columns, tiles.depth, compute, precision),
        ),
        tiles.warps,
        tiles.stages,
    )


def pointwise_product(x: Tensor, weight: Tensor, spec: ConvSpec) -> Tensor:
    """``out[i] = [x[i], skip[i]] @ W[0]`` and its epilogue in one pass over two sources."""
    dtype = spec.compute_dtype
    x, weight = operand(x, dtype), operand(weight, dtype)
    skip = None if spec.skip is None else operand(spec.skip, dtype)
    spec = spec._replace(skip=skip)
    out = torch.empty(x.shape[0], weight.shape[2], dtype=spec.out_dtype, device=x.device)
    shape = ProductShape.of(weight, spec)
    columns, depth = shape.block(dtype)
    tiles = Tiles(128 if depth > 16 else 64, min(64, columns), min(32, depth), 4, 4)
    write_dense(out, x, weight, None, None, shape, spec, tiles)
    return out


_LAUNCH = TritonLauncher(dense_slots_kernel)
