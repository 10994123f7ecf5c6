"""Adds the partial sums of every slot's chunks, in a fixed order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.slot_chunks import chunks_of_slot, power_of_two
from pcnn.kernels.triton_launch import TritonLauncher

#: Values a program holds at once.
BLOCK = 4096


def sum_of_chunks(
    partials: Tensor, counts: Tensor, chunk: int, out_dtype: torch.dtype, *, mirrored: bool = False
) -> Tensor:
    """``out[k] = sum of the partial sums of the chunks of slot k``, in an order that is fixed.

    Args:
        partials: ``[chunks, C_in / groups, C_out]`` float32, chunks slot by slot; those after the
            last are not read.
        counts: ``[K]`` int64 on the same device, pairs of every slot.
        chunk: pairs of a chunk.
        out_dtype: dtype of the result.
        mirrored: slot k fills ``out[K - 1 - k]``.

    Returns:
        ``[K, C_in / groups, C_out]``; zero for a slot without chunks.
    """
    volume = counts.shape[0]
    out = torch.empty((volume, *partials.shape[1:]), dtype=out_dtype, device=partials.device)
    size = partials.shape[1] * partials.shape[2]
    # narrow blocks add many chunks at once and are many: for small weights; wide ones for large
    block = min(256, max(32, power_of_two(size * volume // 4096 + 1)))
    constants = size, volume, power_of_two(volume), mirrored, BLOCK // block, block
    grid = -(-size // block), volume
    _LAUNCH(grid, (partials, counts, out), (chunk,), constants, num_warps=4)
    return out


@triton.jit(do_not_specialize=["chunk"])  # type: ignore[untyped-decorator]
def sum_of_chunks_kernel(  # type: ignore[no-untyped-def]
    partials_ptr,  # [chunks, SIZE] float32
    counts_ptr,  # [VOLUME] int64
    out_ptr,  # [VOLUME, SIZE]
    chunk,
    SIZE: tl.constexpr,
    VOLUME: tl.constexpr,
    SLOTS: tl.constexpr,
    MIRRORED: tl.constexpr,
    CHUNKS: tl.constexpr,
    ELEMENTS: tl.constexpr,
):
    """A block of elements of one slot."""
    slot = tl.program_id(1)
    elements = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    first, last = chunks_of_slot(slot, counts_ptr, chunk, VOLUME, SLOTS)
    partials_ptr += first * SIZE
    number = (last - first).to(tl.int32)
    sums = tl.zeros((CHUNKS, ELEMENTS), dtype=tl.float32)
    for start in range(0, number, CHUNKS):
        chunks = start + tl.arange(0, CHUNKS)
        mask = (chunks < number)[:, None] & (elements < SIZE)[None, :]
        sums += tl.load(partials_ptr + chunks[:, None].to(tl.int64) * SIZE + elements, mask, 0.0)
    target = VOLUME - 1 - slot if MIRRORED else slot
    out = out_ptr + target.to(tl.int64) * SIZE + elements
    tl.store(out, tl.sum(sums, 0).to(out_ptr.dtype.element_ty), mask=elements < SIZE)


_LAUNCH = TritonLauncher(sum_of_chunks_kernel)
