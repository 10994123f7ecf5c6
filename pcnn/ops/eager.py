"""The autograd of a convolution outside compiled code, without the dispatcher.

The same derivatives as `pcnn.ops.library`; a dispatcher operator with lists of tensors costs the
host more than the launches behind it, so first derivatives call the dataflow itself. Where a second
derivative may follow (``create_graph``), backward computes with the operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows import Dataflow
from pcnn.ops.library import Side, products


class Product(NamedTuple):
    """A convolution without its operands.

    Args:
        dataflow: computes it.
        side: of the map that is read.
        n_out: rows of the output.
        groups: groups of channels.
        compute_dtype: operands are rounded to it; so is the output.
    """

    dataflow: Dataflow
    side: Side
    n_out: int
    groups: int
    compute_dtype: torch.dtype

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        """The product with its autograd.

        Args:
            x: ``[N_in, C_in]``.
            weight: ``[K, C_in / groups, C_out]``.

        Returns:
            ``[N_out, C_out]`` in ``compute_dtype``.
        """
        return _apply(x, weight, self)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, product: Product) -> Tensor:
        dtype = product.compute_dtype
        # rounded once for both directions; the gradient has the dtype of the weight itself
        rounded = weight if weight.dtype == dtype else weight.to(dtype)
        ctx.save_for_backward(x, weight)
        ctx.product, ctx.rounded = product, rounded if ctx.needs_input_grad[0] else None
        return product.dataflow.mvmr(
            x,
            rounded,
            product.side.layouts,
            product.n_out,
            product.groups,
            False,
            dtype,
            dtype,
            mirrored=product.side.mirrored,
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        product: Product = ctx.product
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            return *_differentiable(product, x, weight, grad, needs), None
        dataflow, near, dtype = product.dataflow, product.side, product.compute_dtype
        grad_x = grad_weight = None
        if needs[0]:
            far = near.other_side()
            grad_x = dataflow.mvmr(
                grad,
                ctx.rounded,
                far.layouts,
                x.shape[0],
                product.groups,
                True,
                dtype,
                x.dtype,
                mirrored=far.mirrored,
            )
        if needs[1]:
            grad_weight = dataflow.vvor(
                x,
                grad,
                near.layouts_vvor,
                product.groups,
                dtype,
                weight.dtype,
                mirrored=near.mirrored,
            )
        return grad_x, grad_weight, None


def _differentiable(
    product: Product, x: Tensor, weight: Tensor, grad: Tensor, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    """Both gradients as operators, which have derivatives of their own."""
    dataflow, near, _, groups, dtype = product
    operators = products(dataflow)
    grad_x = grad_weight = None
    if needs[0]:
        far = near.other_side()
        rows = x.detach(), grad.detach()
        grad_x = operators.mvmr(grad, weight, *far, *rows, groups, True, dtype, x.dtype)
    if needs[1]:
        sizes = weight.shape[0], groups, dtype, weight.dtype
        grad_weight = operators.vvor(x, grad, *near, *sizes)
    return grad_x, grad_weight


_apply: Callable[[Tensor, Tensor, Product], Tensor] = _Product.apply
