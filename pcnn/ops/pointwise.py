"""A convolution of one slot that maps every row to itself: a plain product of matrices."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows.reduced_product import reduced_product
from pcnn.dataflows.torch_sums import accumulator
from pcnn.ops.products import product_of


def pointwise(x: Tensor, weight: Tensor, compute_dtype: torch.dtype, groups: int = 1) -> Tensor:
    """``x @ W`` in ``compute_dtype``, with a weight gradient in the dtype of the weight.

    A weight gradient is a sum over all rows: in half precision it overflows where the gradients
    that it sums do not. So products of half operands are summed in float32 at least, in pieces that
    cuBLAS sums rightly (`reduced_product`), and rounded to the dtype of the weight.
    """
    plain = weight.dtype == compute_dtype and compute_dtype.itemsize > 2
    if plain or not weight.requires_grad:
        return _product(x.to(compute_dtype), weight.to(compute_dtype), groups)
    return product_of(x, weight, PointwiseProducts(compute_dtype, groups))


def _product(x: Tensor, weight: Tensor, groups: int) -> Tensor:
    if groups == 1:
        return torch.mm(x, weight)
    return _multiplied(_by_group(x, groups), _by_group(weight, groups))


def _multiplied(left: Tensor, right: Tensor) -> Tensor:
    """``[N, C_out]`` of ``[G, N, A]`` and ``[G, A, C_out / G]``; one matrix by ``mm``."""
    if left.shape[0] == 1:
        return torch.mm(left[0], right[0])
    return _joined(torch.bmm(left, right))


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


class PointwiseProducts(NamedTuple):
    """A pointwise product without its operands, as `pcnn.ops.products.Products`."""

    compute_dtype: torch.dtype  # dtype the operands are rounded to
    groups: int = 1  # groups of channels

    def output(self, x: Tensor, rounded: Tensor) -> Tensor:
        """See `Products.output`; a weight ``[1, C_in / groups, C_out]`` is taken too."""
        return _product(x.to(self.compute_dtype), rounded.flatten(0, -2), self.groups)

    def gradients(
        self,
        x: Tensor,
        weight: Tensor,
        rounded: Tensor | None,
        grad: Tensor,
        needs: tuple[bool, ...],
    ) -> tuple[Tensor | None, Tensor | None]:
        """See `Products.gradients`."""
        dtype, groups = self
        grad_x = grad_weight = None
        if needs[0]:
            if rounded is None or torch.is_grad_enabled():
                rounded = weight.to(dtype)
            matrices = _by_group(rounded.flatten(0, -2), groups).transpose(1, 2)
            grad_x = _multiplied(_by_group(grad, groups), matrices).to(x.dtype)
        if needs[1]:
            sums = torch.promote_types(dtype, accumulator(weight.dtype))
            # half operands are multiplied as they are, except where torch has no such product: for
            # sums in float64 and second derivatives
            wide = sums == torch.float64 or torch.is_grad_enabled()
            left, right = (_by_group(side, groups) for side in (x.to(dtype), grad))
            if wide:
                left, right = left.to(sums), right.to(sums)
            found = _joined(reduced_product(left, right, sums)).to(weight.dtype)
            grad_weight = found.view(weight.shape)
        return grad_x, grad_weight
