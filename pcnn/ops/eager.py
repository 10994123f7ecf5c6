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
from pcnn.ops.library import products


class Product(NamedTuple):
    """A convolution without its operands.

    Args:
        dataflow: computes it.
        layouts: of the side of the map that is read.
        layouts_t: of the other side; empty if nobody asks for it, and for a symmetric map.
        layouts_vvor: of the forward map, for the gradient of the weight.
        symmetric: the map is its own transpose.
        mirrored: slot k multiplies ``W[K - 1 - k]``.
        n_out: rows of the output.
        groups: groups of channels.
        compute_dtype: operands are rounded to it; so is the output.
    """

    dataflow: Dataflow
    layouts: list[Tensor]
    layouts_t: list[Tensor]
    layouts_vvor: list[Tensor]
    symmetric: bool
    mirrored: bool
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
            product.layouts,
            product.n_out,
            product.groups,
            False,
            dtype,
            dtype,
            mirrored=product.mirrored,
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        product: Product = ctx.product
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            return *_differentiable(product, x, weight, grad, needs), None
        dataflow, mirrored, dtype = product.dataflow, product.mirrored, product.compute_dtype
        grad_x = grad_weight = None
        if needs[0]:
            grad_x = dataflow.mvmr(
                grad,
                ctx.rounded,
                product.layouts if product.symmetric else product.layouts_t,
                x.shape[0],
                product.groups,
                True,
                dtype,
                x.dtype,
                mirrored=mirrored != product.symmetric,
            )
        if needs[1]:
            grad_weight = dataflow.vvor(
                x,
                grad,
                product.layouts_vvor,
                product.groups,
                dtype,
                weight.dtype,
                mirrored=mirrored,
            )
        return grad_x, grad_weight, None


def _differentiable(
    product: Product, x: Tensor, weight: Tensor, grad: Tensor, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    """Both gradients as operators, which have derivatives of their own."""
    _, layouts, layouts_t, layouts_vvor, symmetric, mirrored, _, groups, dtype = product
    operators = products(product.dataflow)
    near = layouts, layouts_t, layouts_vvor, symmetric, mirrored
    far = (*near[:4], not mirrored)
    if not symmetric:
        far = layouts_t, layouts, layouts_vvor, False, mirrored
    grad_x = grad_weight = None
    if needs[0]:
        grad_x = operators.mvmr(grad, weight, *far, x.shape[0], groups, True, dtype, x.dtype)
    if needs[1]:
        sizes = weight.shape[0], groups, dtype, weight.dtype
        grad_weight = operators.vvor(x, grad, *near, *sizes)
    return grad_x, grad_weight


_apply: Callable[[Tensor, Tensor, Product], Tensor] = _Product.apply
