"""Convolution of features over a kernel map."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.dataflows import Dataflow
from pcnn.geometry import KernelMap
from pcnn.ops.library import products


def convolution(
    x: Tensor,
    weight: Tensor,
    kernel_map: KernelMap,
    dataflow: Dataflow,
    *,
    groups: int = 1,
    compute_dtype: torch.dtype | None = None,
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

    Returns:
        ``[N_out, C_out]`` in ``compute_dtype``.

    Raises:
        ValueError: shapes that do not fit each other.
    """
    _check(x, weight, kernel_map, groups)
    kernel_map.note("product")
    dtype = x.dtype if compute_dtype is None else compute_dtype
    layouts = _layouts(kernel_map, dataflow)
    backward_follows = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if not backward_follows and not torch.compiler.is_compiling():
        # no dispatcher between the layer and the dataflow: half the host time of a call
        n_out = kernel_map.n_out
        return dataflow.mvmr(x, weight, layouts, n_out, groups, False, dtype, dtype)
    layouts_t = _layouts(kernel_map.transpose(), dataflow) if backward_follows else []
    return products(dataflow).mvmr(
        x, weight, layouts, layouts_t, kernel_map.n_out, groups, False, dtype, dtype
    )


def _layouts(kernel_map: KernelMap, dataflow: Dataflow) -> list[Tensor]:
    return [tensor for name in dataflow.needs for tensor in kernel_map.layout(name)]


def _check(x: Tensor, weight: Tensor, kernel_map: KernelMap, groups: int) -> None:
    if x.ndim != 2 or x.shape[0] != kernel_map.n_in:
        raise ValueError(
            f"features must be [{kernel_map.n_in}, C_in] for this map, got {tuple(x.shape)}"
        )
    if weight.ndim != 3 or weight.shape[0] != kernel_map.volume:
        raise ValueError(
            f"weight must be [{kernel_map.volume}, C_in / groups, C_out] for this map, got "
            f"{tuple(weight.shape)}"
        )
    if groups < 1 or weight.shape[1] * groups != x.shape[1] or weight.shape[2] % groups:
        raise ValueError(
            f"{x.shape[1]} input channels in {groups} groups do not fit a weight of shape "
            f"{tuple(weight.shape)}"
        )
