"""Functions of torch that see one row of features at a time, and batch norm over all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pcnn.geometry.base import holding_sites

#: Functions of features ``[N, C]`` in front, number by number or row by row.
POINTWISE: frozenset[Callable[..., Any]] = frozenset(
    {
        *(functional.dropout, functional.linear, functional.prelu),
        *(functional.elu, functional.gelu, functional.mish, functional.relu, functional.silu),
        *(functional.hardswish, functional.hardtanh, functional.leaky_relu, functional.softplus),
        *(torch.abs, torch.clamp, torch.nan_to_num, torch.neg, torch.relu),
        *(torch.cos, torch.exp, torch.log, torch.sigmoid, torch.sin, torch.sqrt, torch.square),
        torch.tanh,
    }
)
#: The same if they act along the channels.
ALONG_CHANNELS = (
    *(functional.softmax, functional.log_softmax, functional.glu),
    *(torch.softmax, torch.log_softmax),
)
#: Norms of every row.
NORMS = (functional.layer_norm, functional.rms_norm)


def acts_by_row(
    function: Callable[..., Any], others: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Whether a function of torch gives each row of features by itself."""
    if function in ALONG_CHANNELS:
        return kwargs.get("dim", others[0] if others else None) in (1, -1)
    if function in NORMS:
        return len(kwargs.get("normalized_shape", others[0] if others else ())) == 1
    if function is torch.pow:
        return isinstance(kwargs.get("exponent", others[0] if others else None), Real)
    return function in POINTWISE


def batch_norm(
    features: Tensor,  # [N, C]
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
    *,
    count: Tensor | None = None,  # [1] int32 on the device, rows that there are, at least two
) -> Tensor:
    """`torch.nn.functional.batch_norm` of features ``[N, C]`` for any N; nothing waits.

    Torch refuses to train on fewer than two rows, because their variance does not exist; here they
    are normalised with the running statistics, which stay as they are.
    """
    if count is None or not training:
        parts = running_mean, running_var, weight, bias, training and len(features) > 1
        return functional.batch_norm(features, *parts, momentum, eps)  # type: ignore[arg-type]
    there = holding_sites(len(features), count)[:, None]  # [N, 1]
    wide = features if features.dtype == torch.float64 else features.float()
    number = count.to(wide.dtype)  # [1]
    mean = torch.where(there, wide, 0).sum(0) / number  # [C]
    centred = torch.where(there, wide - mean, 0)
    variance = centred.square().sum(0) / number
    with torch.no_grad():
        unbiased = variance * number / (number - 1)
        for running, own in ((running_mean, mean), (running_var, unbiased)):
            if running is not None:
                running += momentum * (own.to(running.dtype) - running)
    scaled = centred * torch.rsqrt(variance + eps)
    if weight is not None and bias is not None:
        scaled = torch.where(there, scaled * weight + bias, 0)
    return scaled.to(features.dtype)
