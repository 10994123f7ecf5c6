"""Convolution of features over a kernel map, and its autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Dataflow, Epilogue
from pcnn.dataflows.torch_sums import accumulator, finish, join
from pcnn.geometry import KernelMap
from pcnn.ops.convolution_products import (
    check_operands,
    convolution_products,
)
from pcnn.ops.engine import Engine
from pcnn.ops.map_products import spec_of
from pcnn.ops.products import product_of


def convolution(
    x: Tensor,  # [N_in, C_in] floating point
    weight: Tensor,  # [K, C_in / groups, C_out]; output channels group-major
    kernel_map: KernelMap,
    engine: Engine | Dataflow,
    *,
    groups: int = 1,
    compute_dtype: torch.dtype | None = None,
    bias: Tensor | None = None,  # [C_out], added to every row
    skip: Tensor | None = None,  # [N_in, C_2], input channels that follow those of x; no gradients
    epilogue: Epilogue | None = None,  # of the sums before they are rounded; no gradients
) -> Tensor:
    """Sum ``x[j] @ W[k]`` into ``out[i]`` over the triplets (i, j, k) of the kernel map.

    PointCNN++ Eq. 1. A transposed convolution is the same call on ``kernel_map.transpose()``.
    Differentiable to any order. The layouts that backward reads are built here, while gradients are
    enabled; backward builds nothing.
    """
    dtype = x.dtype if compute_dtype is None else compute_dtype
    graded = torch.is_grad_enabled()
    differs = graded and (x.requires_grad or weight.requires_grad)
    follows = differs or (graded and bias is not None and bias.requires_grad)
    if bias is not None and (skip is not None or epilogue is not None):
        raise ValueError("a bias beside a skip connection or an epilogue: give it as its shift")
    if bias is not None and not follows:
        epilogue = Epilogue(None, bias if bias.dtype.itemsize > 2 else bias.float())
    extra = skip is not None or epilogue is not None
    if differs and not extra:
        products = convolution_products(x, weight, kernel_map, engine, groups, dtype)
        out = product_of(x, weight, products)
        return out if bias is None else out + bias.to(out.dtype)
    edges, shape = kernel_map.edges, weight.shape
    check_operands(x, shape, kernel_map, groups, skip)
    if extra and (graded or groups != 1):
        _check_inference(x, weight, skip, epilogue, groups)
    # a symmetric map is read from one side only, whichever is asked for
    mirrored = kernel_map.flipped and edges.symmetric
    side = kernel_map.transpose() if mirrored else kernel_map
    flow = engine.choose(side, x.device) if isinstance(engine, Engine) else engine
    # without gradients nothing but a leaf requires them: a dry run marks its input so
    layouts = side.read(flow.needs, flow.needs_weight_grad, not graded and x.requires_grad)
    n_out, count = edges.rows[int(not side.flipped)], edges.counts[int(not side.flipped)]
    if not extra:
        spec = spec_of(groups, False, mirrored, dtype, dtype)
        spec = spec if count is None else spec._replace(rows=count)
        out = flow.forward(x, weight, layouts, n_out, spec)
        return out if bias is None else out + bias.to(out.dtype)  # whose gradient alone follows
    spec = ConvSpec(groups, False, mirrored, dtype, dtype, epilogue, skip, count)
    if flow.fuses:
        return flow.forward(x, weight, layouts, n_out, spec)
    # rounded once, after the epilogue
    wide = spec_of(groups, False, mirrored, dtype, accumulator(dtype))
    return finish(flow.forward(join(x, skip), weight, layouts, n_out, wide), spec)


def _check_inference(
    x: Tensor, weight: Tensor, skip: Tensor | None, epilogue: Epilogue | None, groups: int
) -> None:
    """Refuse a skip connection or an epilogue where their gradients would be lost."""
    if skip is not None and groups != 1:
        raise ValueError(f"a second source of features needs groups=1, got {groups}")
    if torch.is_grad_enabled():
        others = () if epilogue is None else (epilogue.scale, epilogue.shift, epilogue.residual)
        if any(t is not None and t.requires_grad for t in (x, weight, skip, *others)):
            raise ValueError(
                "a second source or an epilogue is for inference, but gradients are enabled: call "
                "under torch.no_grad(), or concatenate, add and activate in operations of their own"
            )
