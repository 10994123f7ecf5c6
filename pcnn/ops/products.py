"""Both products over a relation, closed under differentiation.

``mvmr`` multiplies rows by matrices and sums (`Dataflow.forward`), ``vvor`` sums outer products of
rows (`Dataflow.weight_grad`). With ``t`` the relation read backwards:

    d mvmr(x, W, m) / dx = mvmr(g, W, t, transposed)      d / dW = vvor(x, g, m)
    d vvor(x, y, m) / dx = mvmr(y, h, t, transposed)      d / dy = mvmr(x, h, m)

So derivatives of any order are these two again, and whatever the order, a ``vvor`` is over ``m``.
`normalized` is a product, batch norm over its rows, a residual and ReLU as one node, for training.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pcnn.dataflows import ConvSpec, Dataflow
from pcnn.dataflows.torch_sums import accumulator, reduced_product
from pcnn.kernels.conv_spec import RunningStatistics

#: Specs without tensors are few: each is made once, and found again in C.
spec_of: Callable[..., ConvSpec] = functools.cache(ConvSpec)


class MapProducts(NamedTuple):
    """Products over a kernel map."""

    flow: Dataflow  # computes both
    groups: int  # groups of channels
    compute_dtype: torch.dtype
    layouts: list[Tensor]  # of the side that is read
    layouts_t: list[Tensor]  # of the other side
    layouts_vvor: list[Tensor]  # of the forward map, for gradients of weights
    symmetric: bool  # the map is its own transpose
    mirrored: bool  # slot k multiplies W[K - 1 - k]
    n_out: int  # rows of the side that is written
    n_in: int  # rows of the side that is read

    def mvmr(
        self, x: Tensor, weight: Tensor, transposed: bool = False, dtype: torch.dtype | None = None
    ) -> Tensor:
        own = self.compute_dtype
        spec = spec_of(self.groups, transposed, self.mirrored, own, dtype or own)
        return self.flow.forward(x, weight, self.layouts, self.n_out, spec)

    def vvor(self, x: Tensor, grad: Tensor, dtype: torch.dtype) -> Tensor:
        spec = spec_of(self.groups, False, self.mirrored, self.compute_dtype, dtype)
        return self.flow.weight_grad(x, grad, self.layouts_vvor, spec)

    def turned(self) -> MapProducts:
        # in every layer's backward: made at once
        flow, groups, dtype, own, other, outer, symmetric, mirrored, n_out, n_in = self
        if symmetric:
            rows = n_out, n_in
            return MapProducts(flow, groups, dtype, own, other, outer, True, not mirrored, *rows)
        if not other:
            raise RuntimeError(
                "backward through a convolution whose transposed layouts were not built: gradients "
                "were disabled when the forward pass ran"
            )
        return MapProducts(flow, groups, dtype, other, own, outer, False, mirrored, n_in, n_out)


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


#: Products over a relation from one of its sides, without gradients: ``mvmr`` is in a dtype, by
#: default that of the operands, ``turned`` the same from the other side.
Products = MapProducts | PointwiseProducts


def gradients(
    products: Products,
    operands: tuple[Tensor, Tensor],  # x and the weight, as they were given
    rounded: Tensor | None,  # the weight in the compute dtype, where x needs a gradient
    grad: Tensor,  # [N_out, C_out]
    needs: tuple[bool, ...],  # of the two
    transposed: bool = False,  # whether weights were read transposed
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of ``x`` and ``weight``, differentiable where gradients are enabled."""
    (x, weight), graded = operands, torch.is_grad_enabled()
    grad_x = grad_weight = None
    if needs[0]:
        turned = products.turned()
        if graded:
            grad_x = mvmr(grad, weight, turned, not transposed, x.dtype)
        else:
            assert rounded is not None
            grad_x = turned.mvmr(grad, rounded, not transposed, x.dtype)
    if needs[1]:
        # with transposed weights the gradient plays the input's part, on the map read backwards
        left, right = (grad, x) if transposed else (x, grad)
        own = products.turned() if transposed else products
        found = vvor(left, right, own, weight.dtype) if graded else None
        grad_weight = own.vvor(left, right, weight.dtype) if found is None else found
        if grad_weight.ndim != weight.ndim:
            grad_weight = grad_weight.view(weight.shape)
    return grad_x, grad_weight


class _Mvmr(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        products: Products,
        transposed: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        rounded = weight.to(products.compute_dtype)  # once for both directions
        ctx.save_for_backward(x, weight)
        ctx.products, ctx.transposed = products, transposed
        ctx.rounded = rounded if ctx.needs_input_grad[0] else None
        return products.mvmr(x, rounded, transposed, dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        products: Products = ctx.products
        own = ctx.saved_tensors, ctx.rounded, grads[0], ctx.needs_input_grad, ctx.transposed
        return *gradients(products, *own), None, None, None


class _Vvor(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, grad: Tensor, products: Products, dtype: torch.dtype
    ) -> Tensor:
        ctx.save_for_backward(x, grad)
        ctx.products = products
        return products.vvor(x, grad, dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (outer,) = grads
        x, grad = ctx.saved_tensors
        products: Products = ctx.products
        grad_x = grad_grad = None
        if ctx.needs_input_grad[0]:
            grad_x = mvmr(grad, outer, products.turned(), True, x.dtype)
        if ctx.needs_input_grad[1]:
            grad_grad = mvmr(x, outer, products, False, grad.dtype)
        return grad_x, grad_grad, None, None


#: ``[N_out, C_out]`` of features, weights, products, whether the weights are transposed, a dtype.
mvmr: Callable[..., Tensor] = _Mvmr.apply
#: A gradient of the weights of features, gradients, products and a dtype.
vvor: Callable[..., Tensor] = _Vvor.apply


def pointwise(x: Tensor, weight: Tensor, compute_dtype: torch.dtype, groups: int = 1) -> Tensor:
    """A convolution of one slot that maps every row to itself: ``x @ W`` in ``compute_dtype``.

    A weight gradient is a sum over all rows: in half precision it overflows where the gradients
    that it sums do not. So products of half operands are summed in float32 at least, in pieces that
    cuBLAS sums rightly (`reduced_product`), and rounded to the dtype of the weight.
    """
    plain = weight.dtype == compute_dtype and compute_dtype.itemsize > 2
    if plain or not weight.requires_grad:
        return PointwiseProducts(compute_dtype, groups).mvmr(x, weight.to(compute_dtype))
    return mvmr(x, weight, PointwiseProducts(compute_dtype, groups), False, compute_dtype)


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
    return _apply_normalized(
        x, weight, *norm, residual, _Layer(products, running, eps, relu, count)
    )


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
        statistics_of, batch_norm, _ = _norm_kernels()
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
        _, _, batch_norm_gradients = _norm_kernels()
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
def _norm_kernels() -> tuple[Callable[..., Any], ...]:
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


_apply_normalized: Callable[..., Tensor] = _Normalized.apply
