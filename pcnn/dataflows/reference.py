"""Gather, multiply, add, one slot at a time: any device, any float dtype, short enough to trust.

The rows of one slot are a few megabytes, so gathered rows and products stay in the cache of a CPU;
that makes this plain loop quicker there than one large gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pcnn.dataflows.epilogue import Epilogue


@dataclass(frozen=True)
class Reference:
    """The loop over slots that defines the values of every other dataflow.

    Half precision operands are rounded to ``compute_dtype``, then multiplied and summed in float32;
    float64 stays float64.
    """

    name: str = "reference"
    needs: tuple[str, ...] = ("pairs",)
    needs_vvor: tuple[str, ...] = ("pairs",)
    fuses: bool = True
    deterministic: bool = True

    def mvmr(
        self,
        x: Tensor,
        weight: Tensor,
        layouts: Sequence[Tensor],
        n_out: int,
        groups: int,
        transposed: bool,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        *,
        mirrored: bool = False,
        second: Tensor | None = None,
        epilogue: Epilogue | None = None,
    ) -> Tensor:
        """See `Dataflow.mvmr`."""
        in_index, out_index, offsets = layouts
        sums = accumulator(compute_dtype)
        rows = join(x, second).to(compute_dtype).to(sums)
        matrices = per_group(weight.to(compute_dtype).to(sums), groups)  # [K, G, C_in/G, C_out/G]
        if transposed:
            matrices = matrices.transpose(2, 3)
        out = rows.new_zeros(n_out, groups * matrices.shape[3])
        for k, (start, end) in enumerate(slot_ranges(offsets)):
            matrix = matrices[-1 - k if mirrored else k]
            product = multiply(rows.index_select(0, in_index[start:end]), matrix)
            add_rows(out, out_index[start:end], product)
        return finish(out, epilogue, out_dtype)

    def vvor(
        self,
        x: Tensor,
        grad: Tensor,
        layouts: Sequence[Tensor],
        groups: int,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        *,
        mirrored: bool = False,
    ) -> Tensor:
        """See `Dataflow.vvor`."""
        in_index, out_index, offsets = layouts
        sums = accumulator(compute_dtype)
        left, right = (tensor.to(compute_dtype).to(sums) for tensor in (x, grad))
        c_in, c_out = x.shape[1] // groups, grad.shape[1] // groups
        out = left.new_zeros(offsets.shape[0] - 1, groups, c_in, c_out)
        for k, (start, end) in enumerate(slot_ranges(offsets)):
            a = left.index_select(0, in_index[start:end])
            b = right.index_select(0, out_index[start:end])
            slot = out[-1 - k if mirrored else k]
            if groups == 1:
                torch.mm(a.t(), b, out=slot[0])
            else:
                slot.copy_(outer(a.view(-1, groups, c_in), b.view(-1, groups, c_out)))
        # group-major output channels: [K, C_in/G, G * C_out/G]
        return out.transpose(1, 2).reshape(out.shape[0], c_in, groups * c_out).to(out_dtype)


def add_rows(sums: Tensor, index: Tensor, rows: Tensor) -> None:
    """``sums[index] += rows``, in one order where an index is there several times.

    On a GPU ``index_add_`` adds such rows in the order in which they arrive, ``index_put_`` in that
    of a sort; there it waits for the device.
    """
    if not sums.is_cuda:
        sums.index_add_(0, index, rows)
    elif len(index):
        sums.index_put_((index.long(),), rows, accumulate=True)


def kernels_serve(x: Tensor, compute_dtype: torch.dtype) -> bool:
    """Whether Triton kernels take a product: of CUDA tensors, in what tensor cores multiply."""
    return x.is_cuda and compute_dtype != torch.float64


def accumulator(compute_dtype: torch.dtype) -> torch.dtype:
    """Dtype sums are kept in: float64 for float64, else float32."""
    return torch.float64 if compute_dtype == torch.float64 else torch.float32


def join(x: Tensor, second: Tensor | None) -> Tensor:
    """Channels of both sources side by side: ``[N, C_1 + C_2]``."""
    return x if second is None else torch.cat([x, second], dim=1)


def finish(sums: Tensor, epilogue: Epilogue | None, dtype: torch.dtype) -> Tensor:
    """What follows the sums, and the one rounding of the result."""
    return (sums if epilogue is None else epilogue.apply(sums)).to(dtype)


def per_group(weight: Tensor, groups: int) -> Tensor:
    """View ``[K, C_in/G, C_out]`` as ``[K, G, C_in/G, C_out/G]``."""
    volume, c_in, c_out = weight.shape
    return weight.reshape(volume, c_in, groups, c_out // groups).transpose(1, 2)


def slot_ranges(offsets: Tensor) -> list[tuple[int, int]]:
    """First and one-past-last triplet of every slot; ``offsets`` lives on the host."""
    bounds: list[int] = offsets.tolist()
    return list(pairwise(bounds))


def multiply(rows: Tensor, matrices: Tensor) -> Tensor:
    """Rows ``[T, G * A]`` times one matrix per group ``[G, A, B]``: ``[T, G * B]``."""
    groups, a, b = matrices.shape
    with in_given_dtype(rows):
        if groups == 1:
            return rows @ matrices[0]
        product = torch.einsum("tga,gab->tgb", rows.view(-1, groups, a), matrices)
        return product.reshape(-1, groups * b)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Sum of the outer products of rows ``[T, G, A]`` and ``[T, G, B]``: ``[G, A, B]``."""
    with in_given_dtype(a):
        return torch.einsum("tgc,tgd->gcd", a, b)


def in_given_dtype(operand: Tensor) -> AbstractContextManager[object]:
    """Products in the dtype of their operands, under a caller's autocast too.

    Operands are rounded to the compute dtype and then multiplied in the dtype of the sums; autocast
    would round them, and the sums, once more.
    """
    device = operand.device.type
    if not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)
