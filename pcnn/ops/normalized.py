"""A product, batch norm over its rows, a residual and ReLU as one autograd node, for training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pcnn.kernels.conv_spec import RunningStatistics
from pcnn.ops.products import Products, gradients, mvmr


def normalized(
    x: Tensor,  # [N_in, C_in]
    weight: Tensor,
    products: Products,
    norm: tuple[Tensor | None, Tensor | None],
    running: RunningStatistics,
    eps: float,
    residual: Tensor | None = None,  # [N_out, C_out] in the compute dtype, added before ReLU
    relu: bool = False,
    count: Tensor | None = None,  # [1] int32 on the same device
) -> Tensor:
    """``relu(norm(products(x, weight)) + residual)``, on a CUDA device.

    Batch norm by the statistics of the batch (Ioffe & Szegedy 2015), kept in float32, as
    `torch.nn.BatchNorm1d` in training mode; fewer than two rows are normalised by the running
    statistics, which stay as they are. The result is rounded once. Differentiable to any order.
    """
    return _apply(x, weight, *norm, residual, _Layer(products, running, eps, relu, count))


class _Layer(NamedTuple):
    """All but the operands that have gradients."""

    products: Products
    running: RunningStatistics
    eps: float
    relu: bool
    rows: Tensor | None


class _Normalized(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        norm_weight: Tensor | None,
        norm_bias: Tensor | None,
        residual: Tensor | None,
        layer: _Layer,
    ) -> Tensor:
        statistics_of, batch_norm, _ = _kernels()
        products, running, eps, relu, count = layer
        rounded = weight.to(products.compute_dtype)
        y = products.mvmr(x, rounded)
        statistics = statistics_of(y, running, eps, count)
        if running.batches is not None:
            # kernels count no change, but folded norms look at this one
            torch.autograd.graph.increment_version(running.batches)
        out: Tensor = batch_norm(y, statistics, norm_weight, norm_bias, residual, relu, count)
        # without a residual, y tells where ReLU was open
        kept = out if relu and residual is not None else None
        ctx.save_for_backward(x, weight, norm_weight, norm_bias, y, statistics, kept)
        ctx.layer, ctx.rounded = layer, rounded if ctx.needs_input_grad[0] else None
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        layer: _Layer = ctx.layer
        needs = ctx.needs_input_grad
        x, weight, norm_weight, norm_bias, y, statistics, out = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable(layer, (x, weight, norm_weight, norm_bias), out, grads[0], needs)
        _, _, batch_norm_gradients = _kernels()
        grad_y, grad_residual, of_weight, of_bias = batch_norm_gradients(
            grads[0], y, out, statistics, norm_weight, norm_bias, layer.relu, needs[4], layer.rows
        )
        both = gradients(layer.products, (x, weight), ctx.rounded, grad_y, needs)
        return (
            *both,
            None if norm_weight is None else of_weight.to(norm_weight.dtype),
            None if norm_bias is None else of_bias.to(norm_bias.dtype),
            grad_residual,
            None,
        )


@functools.cache
def _kernels() -> tuple[Callable[..., Any], ...]:
    """Statistics, norm and its gradients; only installs with a GPU have Triton."""
    from pcnn.kernels.batch_norm import batch_norm, batch_norm_gradients
    from pcnn.kernels.batch_statistics import batch_statistics

    return batch_statistics, batch_norm, batch_norm_gradients


def _differentiable(
    layer: _Layer,
    inputs: tuple[Tensor | None, ...],
    out: Tensor | None,
    grad: Tensor,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients as functions of inputs and ``grad``, by the operations one after another."""
    if layer.rows is not None:
        raise RuntimeError(
            "second derivatives through a batch norm over a number of rows that the device alone "
            "knows: give geometries of exact size"
        )
    x, weight, norm_weight, norm_bias = inputs
    assert x is not None
    assert weight is not None
    y = mvmr(x, weight, layer.products, False, layer.products.compute_dtype)
    normed = nn.functional.batch_norm(
        y, None, None, norm_weight, norm_bias, training=True, eps=layer.eps
    )
    if layer.relu:
        grad = grad.masked_fill((normed if out is None else out).detach() <= 0, 0)
    pairs = zip(inputs, needs[:4], strict=True)
    wanted = [own for own, need in pairs if need and own is not None]
    found = iter(torch.autograd.grad(normed, wanted, grad, create_graph=True) if wanted else ())
    grads = [next(found) if need else None for need in needs[:4]]
    return *grads, grad if needs[4] else None, None


_apply: Callable[..., Tensor] = _Normalized.apply
