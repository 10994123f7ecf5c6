"""A convolution, its norm, a residual and ReLU in one call: what networks issue for a block."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from pcnn.dataflows.torch_sums import kernels_serve
from pcnn.geometry import Geometry
from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.running_statistics import RunningStatistics
from pcnn.nn.conv import Convolution, compute_dtype
from pcnn.nn.features import add
from pcnn.nn.folded_norm import Folded, FoldedNorm
from pcnn.nn.joined import JoinedTensor
from pcnn.nn.norm import normalize
from pcnn.ops.convolution import convolution
from pcnn.ops.convolution_products import convolution_products
from pcnn.ops.normalized import normalized
from pcnn.ops.pointwise import PointwiseProducts
from pcnn.ops.products import Products
from pcnn.tensor import SparseTensor

Sites = SparseTensor | Geometry | None


def fused_convolution(
    layer: nn.Module,
    x: SparseTensor,
    out: Sites = None,
    norm: nn.Module | None = None,
    residual: SparseTensor | None = None,  # [N_out, C_out] on the output's sites
    relu: bool = False,
    folded: FoldedNorm | None = None,
) -> SparseTensor:
    """``relu(norm(layer(x, out)) + residual)``, in one call where that changes nothing else.

    Without gradients, and with a norm that can be folded (`FoldedNorm`), it is one product: the
    dataflow scales, shifts, adds and rectifies the float32 sums while it stores them, and reads
    both sources of a `JoinedTensor`. A pointwise layer of one source takes the scale into a copy of
    its weights.

    On a GPU, and with a `torch.nn.BatchNorm1d` in training mode, it is one autograd node
    (`pcnn.ops.normalized`): product, statistics, and one pass for all that follows them.

    Everything else runs as it is written, one module after another: gradients in evaluation mode,
    `torch.compile`, layers that are no convolution or have a ``forward`` of their own, other norms,
    and modules that are hooked, so that their hooks fire.
    """
    if torch.compiler.is_compiling():  # sites and maps are found in the call
        parts = x, out, norm, residual, relu, folded
        whole: SparseTensor = torch.compiler.disable(fused_convolution)(layer, *parts)
        return whole
    if _is_free(layer, norm):
        # layer.bias searches three dictionaries, at ten times the cost
        own = layer._parameters if "bias" in layer._parameters else layer.__dict__
        if norm is not None and norm.training:
            y = _trained(layer, x, out, norm, residual, relu) if own["bias"] is None else None
            if y is not None:
                return y
        elif not torch.is_grad_enabled():
            found = (folded or FoldedNorm()).fold(norm, own["bias"], layer.out_channels)
            if found is not None:
                return _fused(layer, x, out, found, residual, relu)
    y = layer(x) if out is None else layer(x, out)
    if norm is not None:
        y = y.replace(normalize(norm, y.features, y.geometry.count))
    if residual is not None:
        y = add(y, residual)
    # in place: no norm needs its own output in backward
    return y.replace(y.features.relu_()) if relu else y


def is_hooked(module: nn.Module) -> bool:
    """True if a call does more than the class says: it is hooked, wrapped or compiled."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or _global_forward_hooks
        or _global_forward_pre_hooks
        or "forward" in module.__dict__
        or module._compiled_call_impl
    )


def _is_free(layer: nn.Module, norm: nn.Module | None) -> TypeGuard[Convolution]:
    """True if the layer computes a convolution, and no hook shows that it is not called."""
    if not isinstance(layer, Convolution) or type(layer).forward is not Convolution.forward:
        return False
    if "weight" not in layer._parameters:  # a parametrized layer computes it
        return False
    if layer.groups > 1 and layer.kernel.is_pointwise:
        return False
    return not (is_hooked(layer) or (norm is not None and is_hooked(norm)))


def _fused(
    layer: Convolution,
    x: SparseTensor,
    out: Sites,
    folded: Folded,
    residual: SparseTensor | None,
    relu: bool,
) -> SparseTensor:
    weight = layer._parameters["weight"]
    assert weight is not None
    sites = out.geometry if isinstance(out, SparseTensor) else out
    kernel_map, target = layer.route(x.geometry, sites)
    added = None
    if residual is not None:
        if residual.geometry is not target:
            raise _elsewhere(residual, target)
        added = residual.features
    skip = None
    if type(x) is JoinedTensor and x.is_apart and layer.groups == 1:
        features, skip = x.first, x.second
    else:
        features = x.features
    dtype = compute_dtype(features)
    if residual is not None and residual.features.dtype != dtype:  # it decides the sum's dtype
        y = add(_fused(layer, x, out, folded, None, False), residual)
        return y.replace(y.features.relu_()) if relu else y
    if kernel_map is None:
        sums = _pointwise(features, skip, weight, folded, added, relu, dtype)
        return SparseTensor(sums, target)
    sums = convolution(
        features,
        weight,
        kernel_map,
        layer.engine,
        groups=layer.groups,
        compute_dtype=dtype,
        skip=skip,
        epilogue=folded.epilogue(added, relu),
    )
    return SparseTensor(sums, target)


def _trained(
    layer: Convolution,
    x: SparseTensor,
    out: Sites,
    norm: nn.Module,
    residual: SparseTensor | None,
    relu: bool,
) -> SparseTensor | None:
    """The layer as one autograd node; ``None`` where it is not served."""
    features = x.features
    dtype = compute_dtype(features)
    if not kernels_serve(features, dtype) or type(features) not in (Tensor, nn.Parameter):
        return None
    if type(norm) is not nn.BatchNorm1d:
        return None
    # norm.weight and its like search three dictionaries, at ten times the cost
    own, buffers, weight = norm._parameters, norm._buffers, layer._parameters["weight"]
    mean, variance = buffers["running_mean"], buffers["running_var"]
    if weight is None or mean is None or variance is None:
        return None
    affine = own["weight"], own["bias"]
    for part in (*affine, mean, variance):
        if part is not None and part.dtype is not torch.float32 and part.dtype is not dtype:
            return None
    if mean.shape != (layer.out_channels,):
        return None
    if residual is not None and residual.features.dtype != dtype:  # it decides the sum's dtype
        y = fused_convolution(layer, x, out, norm)
        y = add(y, residual)
        return y.replace(y.features.relu_()) if relu else y
    sites = out.geometry if isinstance(out, SparseTensor) else out
    kernel_map, target = layer.route(x.geometry, sites)
    if target.rows < 2:
        return None
    products: Products
    if kernel_map is None:
        products = PointwiseProducts(dtype)
    else:
        groups, engine = layer.groups, layer.engine
        products = convolution_products(features, weight, kernel_map, engine, groups, dtype)
    running = RunningStatistics(mean, variance, buffers["num_batches_tracked"], norm.momentum)
    added = None
    if residual is not None:
        if residual.geometry is not target:
            raise _elsewhere(residual, target)
        added = residual.features
    settings = running, norm.eps, added, relu, target.count
    sums = normalized(features, weight, products, affine, *settings)
    return SparseTensor(sums, target)


def _elsewhere(residual: SparseTensor, target: Geometry) -> ValueError:
    return ValueError(
        f"the residual lives on another geometry than the output ({residual.geometry.rows} "
        f"and {target.rows} sites); bring both to the same sites first"
    )


def _pointwise(
    features: Tensor,
    skip: Tensor | None,
    weight: Tensor,
    folded: Folded,
    residual: Tensor | None,
    relu: bool,
    dtype: torch.dtype,
) -> Tensor:
    """A linear layer ``[N, C_in]`` to ``[N, C_out]`` of one source or two, in few launches."""
    if skip is not None and dtype.itemsize == 2 and kernels_serve(features, dtype):
        from pcnn.kernels.dense_slots import pointwise_product

        epilogue = folded.epilogue(residual, relu)
        spec = ConvSpec(compute_dtype=dtype, out_dtype=dtype, epilogue=epilogue, skip=skip)
        return pointwise_product(features, weight, spec)
    split = weight.shape[1] if skip is None else features.shape[1]
    own, others, shift = folded.linear(weight, dtype, split)
    features = features.to(dtype)
    out = features @ own if shift is None else torch.addmm(shift, features, own)
    if skip is not None:
        out.addmm_(skip.to(dtype), others)
    if residual is not None:
        out += residual
    return out.relu_() if relu else out
