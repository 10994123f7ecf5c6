"""A convolution of one slot that maps every row to itself: a plain product of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def pointwise(x: Tensor, weight: Tensor, compute_dtype: torch.dtype) -> Tensor:
    """``x @ W`` in ``compute_dtype``, with a weight gradient in the dtype of the weight.

    A weight gradient is a sum over all rows: in half precision it overflows where the gradients
    that it sums do not. So it is not rounded to what the operands are rounded to.

    Args:
        x: ``[N, C_in]``.
        weight: ``[C_in, C_out]``.
        compute_dtype: dtype the operands are rounded to.

    Returns:
        ``[N, C_out]`` in ``compute_dtype``.
    """
    rounded = x.to(compute_dtype), weight.to(compute_dtype)
    if weight.dtype == compute_dtype or not weight.requires_grad or torch.compiler.is_compiling():
        return torch.mm(*rounded)
    return _apply(x, weight, compute_dtype)


class _Pointwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.dtype = dtype
        return torch.mm(x.to(dtype), weight.to(dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.mm(grad, weight.to(ctx.dtype).t()).to(x.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = _sum_of_products(x.to(ctx.dtype), grad, weight.dtype)
        return grad_x, grad_weight, None


def _sum_of_products(x: Tensor, grad: Tensor, dtype: torch.dtype) -> Tensor:
    """``x^T grad`` in a wider dtype than its operands'."""
    if x.is_cuda and dtype == torch.float32 and not torch.is_grad_enabled() and _HAS_WIDE_OUTPUT:
        return torch.mm(x.t(), grad, out_dtype=dtype)
    return torch.mm(x.to(dtype).t(), grad.to(dtype))


#: torch.mm takes ``out_dtype`` on CUDA since 2.8.
_HAS_WIDE_OUTPUT = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)

_apply: Callable[[Tensor, Tensor, torch.dtype], Tensor] = _Pointwise.apply
