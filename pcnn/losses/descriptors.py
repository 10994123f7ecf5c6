"""What losses of descriptors share: samples, precision, and a batch without anything to learn."""

from __future__ import annotations

import torch
from torch import Tensor


def no_loss(*features: Tensor) -> Tensor:
    """A zero that hangs on the features, with gradient 0 everywhere.

    Every parameter then has a gradient, on one rank of several too, and NaN or infinite features do
    not reach it.

    Args:
        features: [N, C] each.

    Returns:
        Scalar; float32, or float64 for float64 features.
    """
    return torch.stack([full_precision(side[:0]).sum() for side in features]).sum()


def full_precision(features: Tensor) -> Tensor:
    """Features in float32 where they are in half precision, else as they are."""
    return features.float() if features.dtype in (torch.float16, torch.bfloat16) else features


def drawn(n: int, samples: int, device: torch.device) -> Tensor:
    """Rows ``[min(n, samples)]`` int64 of n, each at most once, by the device's own generator."""
    return torch.randperm(n, device=device)[:samples]
