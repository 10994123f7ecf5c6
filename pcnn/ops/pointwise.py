"""A convolution of one slot that maps every row to itself: a plain product of matrices."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows.torch_sums import accumulator, reduced_product
from pcnn.ops.products import mvmr


def pointwise(x: Tensor, weight: Tensor, compute_dtype: torch.dtype, groups: int = 1) -> Tensor:
    """``x @ W`` in ``compute_dtype``, with a weight gradient in the dtype of the weight.

    A weight gradient is a sum over all rows: in half precision it overflows where the gradients
    that it sums do not. So products of half operands are summed in float32 at least, in pieces that
    cuBLAS sums rightly (`reduced_product`), and rounded to the dtype of the weight.
    """
    plain = weight.dtype == compute_dtype and compute_dtype.itemsize > 2
    if plain or not weight.requires_grad:
        return PointwiseProducts(compute_dtype, groups).mvmr(x, weight.to(compute_dtype))
    return mvmr(x, weight, PointwiseProducts(compute_dtype, groups), False, compute_dtype)


class PointwiseProducts(NamedTuple):
    """Products of rows with themselves; a weight is ``[..., C_in / groups, C_out]``."""

    compute_dtype: torch.dtype  # dtype the operands are rounded to
    groups: int = 1  # groups of channels

    def mvmr(
        self, x: Tensor, weight: Tensor, transposed: bool = False, dtype: torch.dtype | None = None
    ) -> Tensor:
        x, matrix = x.to(self.compute_dtype), weight.to(self.compute_dtype).flatten(0, -2)
        if self.groups == 1:
            out = torch.mm(x, matrix.t() if transposed else matrix)
        else:
            matrices = _by_group(matrix, self.groups)
            matrices = matrices.transpose(1, 2) if transposed else matrices
            out = _joined(torch.bmm(_by_group(x, self.groups), matrices))
        return out if dtype is None else out.to(dtype)

    def vvor(self, x: Tensor, grad: Tensor, dtype: torch.dtype) -> Tensor:
        sums = torch.promote_types(self.compute_dtype, accumulator(dtype))
        left, right = (_by_group(t.to(self.compute_dtype), self.groups) for t in (x, grad))
        if sums == torch.float64:  # which torch has no product of half operands for
            left, right = left.to(sums), right.to(sums)
        return _joined(reduced_product(left, right, sums)).to(dtype)

    def turned(self) -> PointwiseProducts:
        return self


def _by_group(channels: Tensor, groups: int) -> Tensor:
    """``[G, N, C / G]`` of ``[N, C]``, also where N is 0."""
    if groups == 1:
        return channels[None]
    size = channels.shape[1] // groups
    apart: Tensor = channels.unflatten(1, (groups, size))
    return apart.transpose(0, 1)


def _joined(groups: Tensor) -> Tensor:
    """``[N, C]`` of ``[G, N, C / G]``."""
    return groups[0] if groups.shape[0] == 1 else groups.transpose(0, 1).flatten(1)
