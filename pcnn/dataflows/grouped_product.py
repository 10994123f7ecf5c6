"""Products of padded buffers, one call a group of slots, by torch's own matrix multiplication."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pcnn.dataflows.padded_buffer import Block
from pcnn.dataflows.reduced_product import reduced_product


def multiply_block(gathered: Tensor, matrices: Tensor, products: Tensor, block: Block) -> None:
    """``products = gathered @ matrices`` for the slots of one block, padding included.

    Args:
        gathered: ``[S * R, G * A]``, rows of S slots one after another.
        matrices: ``[K, G, A, C]`` of all slots.
        products: ``[S * R or more, G * C]``, written.
        block: slots and rows.
    """
    count, rows, groups = len(block.slots), block.rows, matrices.shape[1]
    left = _by_group(gathered, block, groups)  # [S * G, R, A]
    right = block.take(matrices).flatten(0, 1)  # [S * G, A, C]
    out = products[: count * rows].view(count, rows, products.shape[1])
    if groups == 1:
        batched_product(left, right, out)
        return
    found = out.new_empty(count * groups, rows, right.shape[2])
    batched_product(left, right, found)
    found = found.unflatten(0, (count, groups)).transpose(1, 2)
    out.unflatten(2, (groups, right.shape[2])).copy_(found)


def reduce_block(
    operands: Sequence[Tensor], block: Block, groups: int, parts: list[Tensor]
) -> None:
    """``parts[k] = left[slot]^T @ right[slot]`` for the slots of one block.

    Args:
        operands: left ``[S * R, G * A]`` and right ``[S * R, G * C]``, padding zero.
        block: slots and rows.
        groups: groups of channels G.
        parts: ``[G, A, C]`` of every matrix, replaced; float32 (float64 of float64).
    """
    left, right = (_by_group(side, block, groups) for side in operands)
    found = reduced_product(left, right, parts[0].dtype)
    found = found.unflatten(0, (len(block.slots), groups))
    for k, part in zip(block.weights, found.unbind(), strict=True):
        parts[k] = part


def _by_group(buffer: Tensor, block: Block, groups: int) -> Tensor:
    """``[S * G, R, A]`` of ``[S * R, G * A]``; a view where there is one group."""
    shape = len(block.slots), block.rows, groups, buffer.shape[1] // groups
    return buffer.view(shape).transpose(1, 2).flatten(0, 1)


def batched_product(left: Tensor, right: Tensor, out: Tensor) -> None:
    """``out = left @ right``, ``[S, M, A] x [S, A, C]``; ``out`` may be float32 for half operands.

    One matrix is a plain ``mm``. Sums are float32 inside (float64 of float64). Autocast leaves
    products with ``out`` alone, so operands keep the dtype they were given.
    """
    dtype = [] if out.dtype == left.dtype else [out.dtype]
    if left.shape[0] == 1:
        torch.mm(left[0], right[0], *dtype, out=out[0])
    else:
        torch.bmm(left, right, *dtype, out=out)


def run_on_streams(jobs: Sequence[Callable[[], None]], tensors: Sequence[Tensor], n: int) -> None:
    """Run launches one after another, or spread over ``n`` side streams (Minuet 5.2.2).

    Args:
        jobs: each launches on the current stream; none waits for another.
        tensors: what they read and write, for the memory allocator.
        n: number of streams; 1 is the current one.
    """
    device = tensors[0].device
    if n == 1 or len(jobs) < 2 or device.type != "cuda":
        for job in jobs:
            job()
        return
    current = torch.cuda.current_stream(device)
    pool = [torch.cuda.Stream(device) for _ in range(min(n, len(jobs)))]
    for stream in pool:
        stream.wait_stream(current)
        for tensor in tensors:
            tensor.record_stream(stream)
    for number, job in enumerate(jobs):
        with torch.cuda.stream(pool[number % len(pool)]):
            job()
    for stream in pool:
        current.wait_stream(stream)
