"""A convolution of one slot that maps every row to itself: a plain product of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pcnn.dataflows.reduced_product import reduced_product
from pcnn.dataflows.reference import accumulator


def pointwise(x: Tensor, weight: Tensor, compute_dtype: torch.dtype) -> Tensor:
    """``x @ W`` in ``compute_dtype``, with a weight gradient in the dtype of the weight.

    A weight gradient is a sum over all rows: in half precision it overflows where the gradients
    that it sums do not. So products of half operands are summed in float32 at least, in pieces that
    cuBLAS sums rightly (`reduced_product`), and rounded to the dtype of the weight. Compiled code
    leaves it to torch.

    Args:
        x: ``[N, C_in]``.
        weight: ``[C_in, C_out]``.
        compute_dtype: dtype the operands are rounded to.

    Returns:
        ``[N, C_out]`` in ``compute_dtype``.
    """
    rounded = x.to(compute_dtype), weight.to(compute_dtype)
    plain = weight.dtype == compute_dtype and compute_dtype.itemsize > 2
    if plain or not weight.requires_grad or torch.compiler.is_compiling():
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
            sums = torch.promote_types(ctx.dtype, accumulator(weight.dtype))
            # half operands are multiplied as they are, but for what torch has no such product for:
            # sums in float64, and second derivatives
            wide = sums == torch.float64 or torch.is_grad_enabled()
            operands = (x.to(ctx.dtype)[None], grad[None])
            if wide:
                operands = (operands[0].to(sums), operands[1].to(sums))
            grad_weight = reduced_product(*operands, sums)[0].to(weight.dtype)
        return grad_x, grad_weight, None


_apply: Callable[[Tensor, Tensor, torch.dtype], Tensor] = _Pointwise.apply
