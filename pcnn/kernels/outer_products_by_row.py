"""Gradient of the weights from the neighbour table: rows of the gradient serve several slots.

    out[k] = sum over the rows i with an input j in slot k of x[j]^T grad[i]

A program walks a chunk of output rows for a few neighbouring slots. It reads the rows of the
gradient once, as they lie, and for each of its slots gathers the rows of the features; a slot that
a row leaves empty reads nothing and multiplies zeros. Against a walk over the pairs of one slot
this reads ``T + N K / SLOTS`` rows instead of ``2 T`` and needs no pairs, but multiplies
``N K / T`` times as much: it pays where most slots are filled (scans of surfaces in fine voxels
fill two thirds of 3^3) and where channels are few, so that reading is what takes time.

Every program stores its sums, which are then added in a fixed order: two runs give identical bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.gathered_product import compute_type, precision_of
from pcnn.kernels.outer_products import multiprocessors_of
from pcnn.kernels.slot_chunks import power_of_two
from pcnn.kernels.triton_launch import TritonLauncher


@dataclass(frozen=True)
class ByRowTiles:
    """How the work is cut.

    Args:
        block_in: input channels of a tile, a power of two from 16 up.
        block_out: output channels of a tile, a power of two from 16 up.
        block_rows: output rows multiplied at once, a power of two from 16 up.
        slots: neighbouring slots of a program, 1 to 4.
        chunk: output rows of a program.
        num_warps: warps of a program.
        num_stages: depth of the software pipeline.
        cached: whether gathers pass through the cache of the multiprocessor, at half the width:
            slots that are neighbours along the fastest axis gather many of the same rows.
    """

    block_in: int
    block_out: int
    block_rows: int
    slots: int
    chunk: int
    num_warps: int
    num_stages: int
    cached: bool = False


def default_row_tiles(
    rows: int,
    volume: int,
    c_in: int,
    c_out: int,
    groups: int = 1,
    itemsize: int = 2,
    multiprocessors: int = 132,
) -> ByRowTiles:
    """A good cut without measuring.

    Three slots of a 3^3 kernel are the neighbours along z. Chunks are as many as keep every
    multiprocessor busy once; partial sums are one copy of the result in float32 for each, under
    70 MB together besides one copy.

    Args:
        rows: output rows N.
        volume: number of slots K.
        c_in: input channels of a group.
        c_out: output channels of a group.
        groups: groups of channels.
        itemsize: bytes of an operand.
        multiprocessors: of the device.
    """
    widest = 128 if itemsize == 2 else 64
    block_in = min(widest, max(16, power_of_two(c_in)))
    block_out = min(widest, max(16, power_of_two(c_out)))
    sums = block_in * block_out
    slots = min(volume, 3 if sums <= 8192 else 2)
    num_warps = 1 if sums <= 256 else 4 if sums <= 2048 else 8
    block_rows = 64 if itemsize == 2 else 32
    tiles = groups * -(-c_in // block_in) * -(-c_out // block_out) * -(-volume // slots)
    programs = max(1, multiprocessors * 16 // num_warps // tiles)
    if sums > 8192:  # one program fills a multiprocessor
        programs = max(1, programs // 2)
    chunk = max(4, -(-rows // (programs * block_rows))) * block_rows
    return ByRowTiles(block_in, block_out, block_rows, slots, chunk, num_warps, 5)


def outer_products_by_row(
    x: Tensor,
    grad: Tensor,
    table: Tensor,
    groups: int,
    compute_dtype: torch.dtype,
    out_dtype: torch.dtype,
    *,
    mirrored: bool = False,
    tiles: ByRowTiles | None = None,
) -> Tensor:
    """``out[k] = sum over the rows i with j = table[i, k] >= 0 of x[j]^T grad[i]``.

    Args:
        x: ``[N_in, C_in]``, any dtype that is rounded to ``compute_dtype``.
        grad: ``[N_out, C_out]``, finite: empty slots multiply it by zero.
        table: ``[N_out, K]`` int32, input row of every slot, -1 where it is empty.
        groups: groups of channels.
        compute_dtype: float16, bfloat16 or float32 (TF32 where torch's switch allows it).
        out_dtype: dtype of the result.
        mirrored: slot k fills ``out[K - 1 - k]``.
        tiles: how the work is cut; `default_row_tiles` without.

    Returns:
        ``[K, C_in / groups, C_out]``, output channels group-major.

    Raises:
        ValueError: a ``compute_dtype`` that tensor cores do not multiply.
    """
    compute = compute_type(compute_dtype, "vvor on the tensor cores")
    rows, volume = table.shape
    c_in, c_out = x.shape[1] // groups, grad.shape[1] // groups
    shape = (volume, c_in, groups * c_out)
    if rows == 0 or c_in * c_out == 0 or volume == 0:
        return torch.zeros(shape, dtype=out_dtype, device=x.device)
    if tiles is None:
        sizes = rows, volume, c_in, c_out, groups, compute_dtype.itemsize
        tiles = default_row_tiles(*sizes, multiprocessors_of(x.device))
    chunks = -(-rows // tiles.chunk)
    target = torch.empty((chunks, *shape), dtype=torch.float32, device=x.device)
    blocks = -(-c_in // tiles.block_in) * -(-c_out // tiles.block_out) * groups
    constants = (
        *(volume, tiles.slots, c_in, c_out, groups),
        *(tiles.block_in, tiles.block_out, tiles.block_rows, tiles.num_stages),
        *(compute, precision_of(compute_dtype), mirrored, tiles.cached),
    )
    _LAUNCH(
        (chunks * blocks * -(-volume // tiles.slots), 1),
        (x.contiguous(), grad.contiguous(), table, target),
        (rows, tiles.chunk),
        constants,
        tiles.num_warps,
    )
    return (target[0] if chunks == 1 else target.sum(0)).to(out_dtype)


@triton.jit  # type: ignore[untyped-decorator]
def _gathered(  # type: ignore[no-untyped-def]
    x_ptr,
    table_ptr,
    slot,
    live,
    channels,
    VOLUME: tl.constexpr,
    WIDTH: tl.constexpr,
    C_IN: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Features of the inputs in one slot of some rows, ``[channels, rows]``."""
    j = tl.load(table_ptr + slot, mask=live & (slot < VOLUME), other=-1)
    mask = (j >= 0)[None, :]
    if not EXACT:
        mask = mask & (channels < C_IN)[:, None]
    places = j[None, :].to(tl.int64) * WIDTH + channels[:, None]
    return tl.load(x_ptr + places, mask, 0.0).to(COMPUTE)


@triton.jit(do_not_specialize=["n_out", "chunk"])  # type: ignore[untyped-decorator]
def outer_products_by_row_kernel(  # type: ignore[no-untyped-def]
    x_ptr,  # [N_in, GROUPS * C_IN]
    grad_ptr,  # [n_out, GROUPS * C_OUT]
    table_ptr,  # [n_out, VOLUME] int32
    target_ptr,  # [chunks, VOLUME, C_IN, GROUPS * C_OUT] float32
    n_out,
    chunk,
    VOLUME: tl.constexpr,
    SLOTS: tl.constexpr,
    C_IN: tl.constexpr,
    C_OUT: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
    MIRRORED: tl.constexpr,
    CACHED: tl.constexpr,
):
    """One tile of a few slots of the result, summed over one chunk of rows."""
    IN_BLOCKS: tl.constexpr = (C_IN + BLOCK_IN - 1) // BLOCK_IN
    OUT_BLOCKS: tl.constexpr = (C_OUT + BLOCK_OUT - 1) // BLOCK_OUT
    PARTS: tl.constexpr = (VOLUME + SLOTS - 1) // SLOTS
    WIDTH: tl.constexpr = GROUPS * C_IN
    EXACT: tl.constexpr = C_IN % BLOCK_IN == 0
    SLOT_SIZE: tl.constexpr = C_IN * GROUPS * C_OUT

    program = tl.program_id(0)
    slot = program % PARTS * SLOTS
    tile = program // PARTS % (GROUPS * IN_BLOCKS * OUT_BLOCKS)
    number = program // (PARTS * GROUPS * IN_BLOCKS * OUT_BLOCKS)
    group = tile // (IN_BLOCKS * OUT_BLOCKS)
    channels = tile // OUT_BLOCKS % IN_BLOCKS * BLOCK_IN + tl.arange(0, BLOCK_IN)
    columns = tile % OUT_BLOCKS * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    x_ptr += group * C_IN
    if CACHED:  # asynchronous copies of 16 bytes bypass the cache, those of 8 do not. This adds 0;
        # the compiler only knows that it is a multiple of 8 bytes
        x_ptr += (n_out < 0).to(tl.int32) * (64 // x_ptr.dtype.element_ty.primitive_bitwidth)
    grad_ptr += group * C_OUT

    first = number * chunk
    last = tl.minimum(first + chunk, n_out)
    sums_0 = tl.zeros((BLOCK_IN, BLOCK_OUT), dtype=tl.float32)
    sums_1 = sums_0
    sums_2 = sums_0
    sums_3 = sums_0
    for start in tl.range(first, last, BLOCK_ROWS, num_stages=STAGES):
        rows = start + tl.arange(0, BLOCK_ROWS)
        live = rows < last
        mask = live[:, None]
        if C_OUT % BLOCK_OUT != 0:
            mask = mask & (columns < C_OUT)[None, :]
        wide = rows.to(tl.int64)
        b = tl.load(grad_ptr + wide[:, None] * (GROUPS * C_OUT) + columns[None, :], mask, 0.0)
        b = b.to(COMPUTE)
        lists = table_ptr + wide * VOLUME
        a = _gathered(x_ptr, lists, slot, live, channels, VOLUME, WIDTH, C_IN, EXACT, COMPUTE)
        sums_0 = tl.dot(a, b, sums_0, input_precision=PRECISION)
        if SLOTS > 1:
            a = _gathered(
                x_ptr, lists, slot + 1, live, channels, VOLUME, WIDTH, C_IN, EXACT, COMPUTE
            )
            sums_1 = tl.dot(a, b, sums_1, input_precision=PRECISION)
        if SLOTS > 2:
            a = _gathered(
                x_ptr, lists, slot + 2, live, channels, VOLUME, WIDTH, C_IN, EXACT, COMPUTE
            )
            sums_2 = tl.dot(a, b, sums_2, input_precision=PRECISION)
        if SLOTS > 3:
            a = _gathered(
                x_ptr, lists, slot + 3, live, channels, VOLUME, WIDTH, C_IN, EXACT, COMPUTE
            )
            sums_3 = tl.dot(a, b, sums_3, input_precision=PRECISION)

    place = VOLUME - 1 - slot if MIRRORED else slot
    step = -SLOT_SIZE if MIRRORED else SLOT_SIZE
    target_ptr += (number.to(tl.int64) * VOLUME + place) * SLOT_SIZE + group * C_OUT
    targets = target_ptr + channels[:, None] * (GROUPS * C_OUT) + columns[None, :]
    inside = (channels < C_IN)[:, None] & (columns < C_OUT)[None, :]
    tl.store(targets, sums_0, mask=inside)
    if SLOTS > 1:
        tl.store(targets + step, sums_1, mask=inside & (slot + 1 < VOLUME))
    if SLOTS > 2:
        tl.store(targets + 2 * step, sums_2, mask=inside & (slot + 2 < VOLUME))
    if SLOTS > 3:
        tl.store(targets + 3 * step, sums_3, mask=inside & (slot + 3 < VOLUME))


_LAUNCH = TritonLauncher(outer_products_by_row_kernel)
