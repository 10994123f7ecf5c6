"""The one autograd node of products that are linear in features and in weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor


class Products(Protocol):
    """A product of features and weights, with both of its gradients."""

    @property
    def compute_dtype(self) -> torch.dtype:
        """Dtype that operands are rounded to, and of the output."""

    def output(self, x: Tensor, rounded: Tensor) -> Tensor:
        """The product, without gradients.

        Args:
            x: ``[N_in, C_in]``.
            rounded: the weight in the compute dtype.

        Returns:
            ``[N_out, C_out]``.
        """

    def gradients(
        self,
        x: Tensor,
        weight: Tensor,
        rounded: Tensor | None,
        grad: Tensor,
        needs: tuple[bool, ...],
    ) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of ``x`` and ``weight``, differentiable where gradients are enabled.

        Args:
            x: as it was given.
            weight: the weight itself.
            rounded: in the compute dtype; ``None`` where no gradient of ``x`` is asked for.
            grad: ``[N_out, C_out]``, gradient of the output.
            needs: which of the two are asked for.
        """


def product_of(x: Tensor, weight: Tensor, products: Products) -> Tensor:
    """The product, differentiable as often as its gradients are."""
    return _apply(x, weight, products)


def rounded_to(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight in the compute dtype: rounded once for both directions."""
    return weight if weight.dtype == dtype else weight.to(dtype)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, products: Products) -> Tensor:
        rounded = rounded_to(weight, products.compute_dtype)
        ctx.save_for_backward(x, weight)
        ctx.products, ctx.rounded = products, rounded if ctx.needs_input_grad[0] else None
        return products.output(x, rounded)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        products: Products = ctx.products
        return *products.gradients(x, weight, ctx.rounded, grads[0], ctx.needs_input_grad), None


_apply: Callable[[Tensor, Tensor, Products], Tensor] = _Product.apply
