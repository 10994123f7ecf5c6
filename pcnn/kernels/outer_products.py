"""Gradient of the weights: ``out[k] = sum over the triplets (i, j, k) of x[j]^T grad[i]``.

A program multiplies the rows of one chunk of a slot's pairs on the tensor cores, in a tile that
covers all of ``C_in x C_out`` where registers allow. Chunks store their sums, and a second kernel
adds those of every slot in a fixed order and rounds once, so two runs give identical bits. The
number of chunks follows from the device: partial sums take under 70 MB on a large one, plus one
float32 copy of the result.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.gathered_product import (
    COMPUTE,
    chunks_of_slot,
    compute_type,
    most_chunks,
    precision_of,
    slot_chunk,
    slots_of,
)
from pcnn.kernels.product_tiles import power_of_two, side_by_side
from pcnn.kernels.triton_launch import TritonLauncher, Variant

#: Values of partial sums that a program of the second kernel holds at once.
BLOCK = 4096
#: Depth of the software pipeline.
STAGES = 5


def tiles_of(c_in: int, c_out: int, itemsize: int) -> tuple[int, int, int, int]:
    """Input and output channels of a tile, pairs multiplied at once, and warps of a program."""
    widest = 128 if itemsize == 2 else 64  # float32 operands take twice the shared memory
    block_in = min(widest, max(16, power_of_two(c_in)))
    block_out = min(widest, max(16, power_of_two(c_out)))
    if itemsize == 2 and block_in == block_out == 128 and c_out > 128:
        block_out = 256
    sums = block_in * block_out
    num_warps = 1 if sums <= 256 else 2 if sums <= 1024 else 4 if sums <= 8192 else 8
    return block_in, block_out, 64 if itemsize == 2 else 32, num_warps


def chunk_of(triplets: int, resident: int, block_pairs: int) -> int:
    """Pairs of a chunk, at least 4 steps long, where so many run at once."""
    return max(4, -(-triplets // (resident * block_pairs))) * block_pairs


def outer_products(
    x: Tensor,  # [N_in, C_in], of any float dtype
    grad: Tensor,  # [N_out, C_out]
    in_index: Tensor,  # [T] int32, input row of every pair, slot by slot
    out_index: Tensor,  # [T] int32, output row of every pair
    counts: Tensor,  # [K] int64 on the same device, pairs of every slot
    spec: ConvSpec,
) -> Tensor:
    """``out[k] = sum over the pairs (i, j) of slot k of x[j]^T grad[i]``."""
    groups, compute_dtype = spec.groups, spec.compute_dtype
    compute_type(compute_dtype, "the weight gradient on tensor cores")
    triplets, volume = in_index.shape[0], counts.shape[0]
    c_in, c_out = x.shape[1] // groups, grad.shape[1] // groups
    shape = (volume, c_in, groups * c_out)
    if triplets == 0 or c_in * c_out == 0 or volume == 0:
        return torch.zeros(shape, dtype=spec.out_dtype, device=x.device)
    precision = precision_of(compute_dtype)
    sizes = x.shape[1], grad.shape[1], groups, volume
    variant, programs, resident, block_pairs = _cut(*sizes, compute_dtype, precision, x.device)
    chunk = chunk_of(triplets, resident, block_pairs)
    chunks = most_chunks(triplets, volume, chunk)
    partials = torch.empty((chunks, *shape[1:]), dtype=torch.float32, device=x.device)
    variant(
        (chunks * programs, 1),
        (x.contiguous(), grad.contiguous(), in_index, out_index, counts, partials),
        (chunk, volume),
    )
    summed, grid, parts = _sum_cut(shape[1] * shape[2], volume, spec.mirrored)
    out = torch.empty(shape, dtype=spec.out_dtype, device=x.device)
    summed(grid, (partials, counts, out), (chunk, parts, volume))
    return out


@functools.lru_cache(maxsize=4096)
def _cut(
    channels_in: int,
    channels_out: int,
    groups: int,
    volume: int,
    compute_dtype: torch.dtype,
    precision: str,
    device: torch.device,
) -> tuple[Variant, int, int, int]:
    """The kernel, programs of a chunk, chunks that run at once, and pairs multiplied at once."""
    c_in, c_out = channels_in // groups, channels_out // groups
    # narrow groups side by side fill a tile, of which the diagonal is kept
    side = side_by_side(groups, max(c_in, c_out))
    c_in, c_out, groups = side * c_in, side * c_out, groups // side
    block_in, block_out, block_pairs, num_warps = tiles_of(c_in, c_out, compute_dtype.itemsize)
    programs = groups * -(-c_in // block_in) * -(-c_out // block_out)
    constants = (
        *(slots_of(volume), c_in, c_out, groups, side),
        *(block_in, block_out, block_pairs, STAGES),
        *(COMPUTE[compute_dtype], precision),
    )
    resident = max(1, multiprocessors_of(device) * 16 // num_warps // programs)
    return _LAUNCH.variant(constants, num_warps), programs, resident, block_pairs


@functools.cache
def multiprocessors_of(device: torch.device) -> int:
    """Multiprocessors of a device; in the interpreter the CPU counts as one."""
    if device.type != "cuda":
        return 1
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


# pairs and counts lie between others, wherever they happen to begin
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["chunk", "volume"],
    do_not_specialize_on_alignment=["in_index_ptr", "out_index_ptr", "counts_ptr"],
)
def outer_products_kernel(  # type: ignore[no-untyped-def]
    x_ptr,  # [N_in, GROUPS * C_IN]
    grad_ptr,  # [N_out, GROUPS * C_OUT]
    in_index_ptr,  # [T] int32
    out_index_ptr,  # [T] int32
    counts_ptr,  # [volume] int64
    partials_ptr,  # [chunks, C_IN / SIDE, GROUPS * C_OUT] float32
    chunk,
    volume,
    SLOTS: tl.constexpr,
    C_IN: tl.constexpr,
    C_OUT: tl.constexpr,
    GROUPS: tl.constexpr,
    SIDE: tl.constexpr,  # narrow groups that are one here
    BLOCK_IN: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One tile of the result, summed over one chunk of pairs."""
    IN_BLOCKS: tl.constexpr = (C_IN + BLOCK_IN - 1) // BLOCK_IN
    OUT_BLOCKS: tl.constexpr = (C_OUT + BLOCK_OUT - 1) // BLOCK_OUT
    TILES: tl.constexpr = GROUPS * IN_BLOCKS * OUT_BLOCKS

    # programs of one chunk follow each other: they gather the same rows
    number = tl.program_id(0) // TILES
    tile = tl.program_id(0) % TILES
    group = tile // (IN_BLOCKS * OUT_BLOCKS)
    _, first, last = slot_chunk(number, counts_ptr, chunk, volume, SLOTS)
    if first == last:
        return
    in_index_ptr += first
    out_index_ptr += first
    length = (last - first).to(tl.int32)

    rows = tile // OUT_BLOCKS % IN_BLOCKS * BLOCK_IN + tl.arange(0, BLOCK_IN)
    columns = tile % OUT_BLOCKS * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    x_ptr += group * C_IN
    grad_ptr += group * C_OUT
    pairs = tl.arange(0, BLOCK_PAIRS)
    sums = tl.zeros((BLOCK_IN, BLOCK_OUT), dtype=tl.float32)
    for start in tl.range(0, length, BLOCK_PAIRS, num_stages=STAGES):
        live = start + pairs < length
        j = tl.load(in_index_ptr + start + pairs, mask=live, other=0).to(tl.int64)
        i = tl.load(out_index_ptr + start + pairs, mask=live, other=0).to(tl.int64)
        in_mask = live[None, :]
        if C_IN % BLOCK_IN != 0:
            in_mask = in_mask & (rows < C_IN)[:, None]
        out_mask = live[:, None]
        if C_OUT % BLOCK_OUT != 0:
            out_mask = out_mask & (columns < C_OUT)[None, :]
        # both sides are masked: a row that no pair names may hold infinities. x is loaded as
        # [C_in, pairs]: turned after the load, it would not be loaded ahead for mma.sync
        a = tl.load(x_ptr + j[None, :] * (GROUPS * C_IN) + rows[:, None], in_mask, 0.0)
        b = tl.load(grad_ptr + i[:, None] * (GROUPS * C_OUT) + columns[None, :], out_mask, 0.0)
        sums = tl.dot(a.to(COMPUTE), b.to(COMPUTE), sums, input_precision=PRECISION)

    OWN_IN: tl.constexpr = C_IN // SIDE
    own = rows if SIDE == 1 else rows % OWN_IN
    places = (number.to(tl.int64) * OWN_IN + own[:, None]) * (GROUPS * C_OUT)
    targets = partials_ptr + places + group * C_OUT + columns[None, :]
    inside = (rows < C_IN)[:, None] & (columns < C_OUT)[None, :]
    if SIDE > 1:
        inside &= (rows // OWN_IN)[:, None] == (columns // (C_OUT // SIDE))[None, :]
    tl.store(targets, sums, mask=inside)


@functools.lru_cache(maxsize=4096)
def _sum_cut(size: int, volume: int, mirrored: bool) -> tuple[Variant, tuple[int, int], int]:
    # narrow blocks add many chunks at once and are many: for small weights; wide ones for large
    block = min(256, max(32, power_of_two(size * volume // 4096 + 1)))
    divisor = min(16, size & -size)
    constants = divisor, slots_of(volume), mirrored, BLOCK // block, block
    return _SUM.variant(constants, 4), (-(-size // block), volume), size // divisor


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["chunk", "parts", "volume"], do_not_specialize_on_alignment=["counts_ptr"]
)
def sum_of_chunks_kernel(  # type: ignore[no-untyped-def]
    partials_ptr,  # [chunks, size] float32
    counts_ptr,  # [volume] int64
    out_ptr,  # [volume, size]
    chunk,
    parts,  # of the size, DIVISOR elements each: the compiler sees that accesses may be wide
    volume,
    DIVISOR: tl.constexpr,
    SLOTS: tl.constexpr,
    MIRRORED: tl.constexpr,
    CHUNKS: tl.constexpr,
    ELEMENTS: tl.constexpr,
):
    """A block of elements of one slot."""
    size = parts * DIVISOR
    slot = tl.program_id(1)
    elements = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    first, last = chunks_of_slot(slot, counts_ptr, chunk, volume, SLOTS)
    partials_ptr += first * size
    number = (last - first).to(tl.int32)
    sums = tl.zeros((CHUNKS, ELEMENTS), dtype=tl.float32)
    for start in range(0, number, CHUNKS):
        chunks = start + tl.arange(0, CHUNKS)
        mask = (chunks < number)[:, None] & (elements < size)[None, :]
        sums += tl.load(partials_ptr + chunks[:, None].to(tl.int64) * size + elements, mask, 0.0)
    target = volume - 1 - slot if MIRRORED else slot
    out = out_ptr + target.to(tl.int64) * size + elements
    tl.store(out, tl.sum(sums, 0).to(out_ptr.dtype.element_ty), mask=elements < size)


_LAUNCH = TritonLauncher(outer_products_kernel)
_SUM = TritonLauncher(sum_of_chunks_kernel)
