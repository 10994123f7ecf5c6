"""A convolution of one slot that maps every row to itself: a plain product of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pcnn.dataflows.reduced_product import reduced_product
from pcnn.dataflows.torch_sums import accumulator


def pointwise(x: Tensor, weight: Tensor, compute_dtype: torch.dtype, groups: int = 1) -> Tensor:
    """``x @ W`` in ``compute_dtype``, with a weight gradient in the dtype of the weight.

    A weight gradient is a sum over all rows: in half precision it overflows where the gradients
    that it sums do not. So products of half operands are summed in float32 at least, in pieces that
    cuBLAS sums rightly (`reduced_product`), and rounded to the dtype of the weight. Compiled code
    leaves it to torch.

    Args:
        x: ``[N, C_in]``.
        weight: ``[C_in / groups, C_out]``; output channels group-major.
        compute_dtype: dtype the operands are rounded to.
        groups: groups of channels; divides C_in and C_out.

    Returns:
        ``[N, C_out]`` in ``compute_dtype``.
    """
    rounded = x.to(compute_dtype), weight.to(compute_dtype)
    plain = weight.dtype == compute_dtype and compute_dtype.itemsize > 2
    if plain or not weight.requires_grad or torch.compiler.is_compiling():
        return _product(*rounded, groups)
    return _apply(x, weight, compute_dtype, groups)


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


class _Pointwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dtype: torch.dtype, groups: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.dtype, ctx.groups = dtype, groups
        return _product(x.to(dtype), weight.to(dtype), groups)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        groups = ctx.groups
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            matrices = _by_group(weight.to(ctx.dtype), groups).transpose(1, 2)
            grad_x = _multiplied(_by_group(grad, groups), matrices).to(x.dtype)
        if ctx.needs_input_grad[1]:
            sums = torch.promote_types(ctx.dtype, accumulator(weight.dtype))
            # half operands are multiplied as they are, but for what torch has no such product for:
            # sums in float64, and second derivatives
            wide = sums == torch.float64 or torch.is_grad_enabled()
            left, right = (_by_group(side, groups) for side in (x.to(ctx.dtype), grad))
            if wide:
                left, right = left.to(sums), right.to(sums)
            grad_weight = _joined(reduced_product(left, right, sums)).to(weight.dtype)
        return grad_x, grad_weight, None, None


_apply: Callable[[Tensor, Tensor, torch.dtype, int], Tensor] = _Pointwise.apply
