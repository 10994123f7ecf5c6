"""Convolution of features over a kernel map, and its autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Dataflow, Epilogue
from pcnn.dataflows.torch_sums import accumulator, finish, join
from pcnn.geometry import KernelMap
from pcnn.ops.engine import Engine
from pcnn.ops.products import MapProducts, mvmr, spec_of


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
        products = products_of(x, weight, kernel_map, engine, groups, dtype)
        out = mvmr(x, weight, products, False, dtype)
        return out if bias is None else out + bias.to(out.dtype)
    edges = kernel_map.edges
    if extra and (graded or groups != 1):
        _check_inference(x, weight, skip, epilogue, groups)
    given = x, weight.shape, kernel_map, engine, groups
    side, flow, layouts, mirrored = _read(*given, skip, graded)
    n_out, count = edges.rows[not side.flipped], edges.counts[not side.flipped]
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


def products_of(
    x: Tensor,
    weight: Tensor,
    kernel_map: KernelMap,
    engine: Engine | Dataflow,
    groups: int,
    dtype: torch.dtype,
) -> MapProducts:
    """The products of a convolution and its gradients, with the layouts that backward reads."""
    edges, graded = kernel_map.edges, torch.is_grad_enabled()
    given = x, weight.shape, kernel_map, engine, groups
    side, flow, layouts, mirrored = _read(*given, None, graded)
    both = graded and x.requires_grad and not edges.symmetric
    layouts_t = side.transpose().layouts(flow.needs) if both else []
    trained = graded and weight.requires_grad
    layouts_vvor = side.layouts(flow.needs_weight_grad) if trained else []
    rows = edges.rows[not side.flipped], edges.rows[side.flipped]
    lists = layouts, layouts_t, layouts_vvor
    return MapProducts(flow, groups, dtype, *lists, edges.symmetric, mirrored, *rows)


def _read(
    x: Tensor,
    weights: torch.Size,
    kernel_map: KernelMap,
    engine: Engine | Dataflow,
    groups: int,
    skip: Tensor | None = None,
    graded: bool = False,
) -> tuple[KernelMap, Dataflow, list[Tensor], bool]:
    """The side of a map that is read, by which dataflow, its layouts, and whether mirrored."""
    # shapes and rows are read once: this runs in every layer
    shape, n_in = x.shape, kernel_map.edges.rows[kernel_map.flipped]
    if len(shape) != 2 or shape[0] != n_in:
        raise ValueError(f"features must be [{n_in}, C_in] for this map, got {tuple(shape)}")
    channels = shape[1]
    if skip is not None:
        if skip.ndim != 2 or skip.shape[0] != n_in:
            raise ValueError(f"second features must be [{n_in}, C_2], got {tuple(skip.shape)}")
        channels += skip.shape[1]
    if len(weights) != 3 or weights[0] != kernel_map.edges.volume:
        raise ValueError(
            f"weight must be [{kernel_map.volume}, C_in / groups, C_out] for this map, got "
            f"{tuple(weights)}"
        )
    if groups < 1 or weights[1] * groups != channels or weights[2] % groups:
        raise ValueError(
            f"{channels} input channels in {groups} groups do not fit a weight of shape "
            f"{tuple(weights)}"
        )
    # a symmetric map is read from one side only, whichever is asked for
    mirrored = kernel_map.flipped and kernel_map.edges.symmetric
    side = kernel_map.transpose() if mirrored else kernel_map
    flow = engine.choose(side, x.device) if isinstance(engine, Engine) else engine
    # without gradients nothing but a leaf requires them: a dry run marks its input so
    layouts = side.read(flow.needs, flow.needs_weight_grad, not graded and x.requires_grad)
    return side, flow, layouts, mirrored


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
                "a second source or an epilogue is for inference, but gradients are enabled"
            )
