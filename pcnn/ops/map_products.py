"""Both products over a kernel map, closed under differentiation.

``mvmr`` (`Dataflow.forward`) and ``vvor`` (`Dataflow.weight_grad`), with ``t`` the transposed map:

    d mvmr(x, W, m) / dx = mvmr(g, W, t, transposed)      d / dW = vvor(x, g, m)
    d vvor(x, y, m) / dx = mvmr(y, h, t, transposed)      d / dy = mvmr(x, h, m)

So derivatives of any order are these two again, and whatever the order, a ``vvor`` is over ``m``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Dataflow

#: Specs without tensors are few: each is made once, and found again in C.
spec_of: Callable[..., ConvSpec] = functools.cache(ConvSpec)


class MapOperands(NamedTuple):
    """The layouts of a kernel map, seen from one side."""

    layouts: list[Tensor]  # of the side that is read
    layouts_t: list[Tensor]  # of the other side
    layouts_vvor: list[Tensor]  # of the forward map, for gradients of weights
    symmetric: bool  # the map is its own transpose
    mirrored: bool  # slot k multiplies W[K - 1 - k]

    def transposed(self) -> MapOperands:
        """The other side; a RuntimeError where its layouts were not built."""
        layouts, layouts_t, layouts_vvor, symmetric, mirrored = self
        if symmetric:
            return MapOperands(layouts, layouts_t, layouts_vvor, True, not mirrored)
        if not layouts_t:
            raise RuntimeError(
                "backward through a convolution whose transposed layouts were not built: gradients "
                "were disabled when the forward pass ran"
            )
        return MapOperands(layouts_t, layouts, layouts_vvor, False, mirrored)


class MapProducts(NamedTuple):
    """What computes over a map."""

    flow: Dataflow  # computes both products
    groups: int  # groups of channels
    compute_dtype: torch.dtype  # dtype that operands are rounded to


class _Mvmr(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        products: MapProducts,
        side: MapOperands,
        rows: int,
        transposed: bool,
        out_dtype: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.products, ctx.side, ctx.transposed = products, side, transposed
        flow, groups, dtype = products.flow, products.groups, products.compute_dtype
        spec = spec_of(groups, transposed, side.mirrored, dtype, out_dtype)
        return flow.forward(x, weight, side.layouts, rows, spec)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        products, side, transposed = ctx.products, ctx.side, ctx.transposed
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            settings = products, side.transposed(), x.shape[0], not transposed, x.dtype
            grad_x = mvmr(grad, weight, *settings)
        if ctx.needs_input_grad[1]:
            # with transposed weights the gradient plays the input's part, on the map read backwards
            left, right = (grad, x) if transposed else (x, grad)
            own = side.transposed() if transposed else side
            grad_weight = vvor(left, right, products, own, weight.dtype)
        return grad_x, grad_weight, None, None, None, None, None


class _Vvor(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        grad: Tensor,
        products: MapProducts,
        side: MapOperands,
        out_dtype: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(x, grad)
        ctx.products, ctx.side = products, side
        spec = spec_of(products.groups, False, side.mirrored, products.compute_dtype, out_dtype)
        return products.flow.weight_grad(x, grad, side.layouts_vvor, spec)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (outer,) = grads
        x, grad = ctx.saved_tensors
        products, side = ctx.products, ctx.side
        grad_x = grad_grad = None
        if ctx.needs_input_grad[0]:
            grad_x = mvmr(grad, outer, products, side.transposed(), x.shape[0], True, x.dtype)
        if ctx.needs_input_grad[1]:
            grad_grad = mvmr(x, outer, products, side, grad.shape[0], False, grad.dtype)
        return grad_x, grad_grad, None, None, None


#: ``[rows, C_out]`` of features, weights, what computes, a side of the map, its rows, whether the
#: weights are transposed, and a dtype.
mvmr: Callable[..., Tensor] = _Mvmr.apply
#: ``[K, C_in / groups, C_out]`` of features, gradients, what computes, a side and a dtype.
vvor: Callable[..., Tensor] = _Vvor.apply
