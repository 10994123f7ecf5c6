"""Convolution of features over a kernel map."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.dataflows import Dataflow, Epilogue
from pcnn.dataflows.reference import accumulator, finish, join
from pcnn.geometry import KernelMap
from pcnn.ops.eager import Product
from pcnn.ops.library import Side, products


def convolution(
    x: Tensor,
    weight: Tensor,
    kernel_map: KernelMap,
    dataflow: Dataflow,
    *,
    groups: int = 1,
    compute_dtype: torch.dtype | None = None,
    second: Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> Tensor:
    """Sum ``x[j] @ W[k]`` into ``out[i]`` over the triplets (i, j, k) of the kernel map.

    PointCNN++ Eq. 1. A transposed convolution is the same call on ``kernel_map.transpose()``.
    Differentiable to any order. Whatever backward needs of the map is built here, while gradients
    are enabled; backward builds nothing.

    Args:
        x: ``[N_in, C_in]`` floating point.
        weight: ``[K, C_in / groups, C_out]``; output channels group-major.
        kernel_map: the triplets.
        dataflow: how the products are computed.
        groups: groups of channels; divides C_in and C_out.
        compute_dtype: dtype operands are rounded to (autocast); ``None`` means that of ``x``.
        second: ``[N_in, C_2]``, input channels that follow those of ``x``, as if concatenated; for
            inference, at groups = 1.
        epilogue: applied to the sums before they are rounded to ``compute_dtype``; for inference.

    Returns:
        ``[N_out, C_out]`` in ``compute_dtype``.

    Raises:
        ValueError: shapes that do not fit each other, or a second source or an epilogue where
            gradients follow.
    """
    _check(x, weight, kernel_map, groups, second)
    dtype = x.dtype if compute_dtype is None else compute_dtype
    # a symmetric map is read from one side only, whichever is asked for
    mirrored = kernel_map.flipped and kernel_map.symmetric
    side = kernel_map.transpose() if mirrored else kernel_map
    compiling, needs = torch.compiler.is_compiling(), dataflow.needs
    grad_x = grad_weight = False
    extra, graded = second is not None or epilogue is not None, torch.is_grad_enabled()
    if graded:
        grad_x, grad_weight = x.requires_grad, weight.requires_grad
    if compiling:  # a list that is kept would be a side effect
        layouts = side.layouts(needs)
    else:  # without gradients nothing but a leaf requires them: a dry run marks its input so
        layouts = side.read(needs, dataflow.needs_vvor, not graded and x.requires_grad)
    if extra and (graded or groups != 1):
        _check_inference(x, weight, second, epilogue, groups)
    if not (grad_x or grad_weight or compiling or (extra and not dataflow.fuses)):
        # no dispatcher between the layer and the dataflow: half the host time of a call
        return dataflow.mvmr(
            x,
            weight,
            layouts,
            side.n_out,
            groups,
            False,
            dtype,
            dtype,
            mirrored=mirrored,
            second=second,
            epilogue=epilogue,
        )
    if not extra:
        both = grad_x and not side.symmetric
        layouts_t = side.transpose().layouts(needs) if both else []
        layouts_vvor = side.layouts(dataflow.needs_vvor) if grad_weight else []
        near = Side(layouts, layouts_t, layouts_vvor, side.symmetric, mirrored)
        if not compiling:
            return Product(dataflow, near, side.n_out, groups, dtype)(x, weight)
        operands = x, weight, *near, *side.extents
        return products(dataflow).mvmr(*operands, groups, False, dtype, dtype)
    if dataflow.fuses:
        parts = Epilogue() if epilogue is None else epilogue
        return products(dataflow).fused(
            x,
            weight,
            second,
            layouts,
            mirrored,
            side.extents[0],
            groups,
            dtype,
            parts.scale,
            parts.shift,
            parts.residual,
            parts.relu,
        )
    wide = accumulator(dtype)  # rounded once, after the epilogue
    settings = groups, False, dtype, wide
    x = join(x, second)
    if compiling:
        near = Side(layouts, [], [], side.symmetric, mirrored)
        out = products(dataflow).mvmr(x, weight, *near, *side.extents, *settings)
        return finish(out, epilogue, dtype)
    product = dataflow.mvmr(x, weight, layouts, side.n_out, *settings, mirrored=mirrored)
    return finish(product, epilogue, dtype)


def _check(
    x: Tensor, weight: Tensor, kernel_map: KernelMap, groups: int, second: Tensor | None
) -> None:
    # shapes are read once: this runs in every layer
    shape, weights = x.shape, weight.shape
    if len(shape) != 2 or shape[0] != kernel_map.n_in:
        raise ValueError(
            f"features must be [{kernel_map.n_in}, C_in] for this map, got {tuple(shape)}"
        )
    channels = shape[1]
    if second is not None:
        if second.ndim != 2 or second.shape[0] != shape[0]:
            raise ValueError(
                f"second features must be [{shape[0]}, C_2] to match the first, got "
                f"{tuple(second.shape)}"
            )
        channels += second.shape[1]
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


def _check_inference(
    x: Tensor, weight: Tensor, second: Tensor | None, epilogue: Epilogue | None, groups: int
) -> None:
    """Refuse a second source or an epilogue where their gradients would be lost."""
    if second is not None and groups != 1:
        raise ValueError(f"a second source of features needs groups=1, got {groups}")
    if torch.is_grad_enabled():
        others = () if epilogue is None else (epilogue.scale, epilogue.shift, epilogue.residual)
        if any(t is not None and t.requires_grad for t in (x, weight, second, *others)):
            raise ValueError(
                "a second source or an epilogue is for inference, but gradients are enabled: call "
                "under torch.no_grad(), or concatenate, add and activate in operations of their own"
            )
