"""Descriptors of unit length."""

from __future__ import annotations

import torch
from torch import Tensor

SHORTEST = 1e-8


def unit_length(features: Tensor) -> Tensor:
    """Divide every row by its Euclidean length.

    A row shorter than 1e-8 stays as it is, and its gradient too: a division by almost nothing
    would hand the network a gradient of 1e8.

    Args:
        features: [N, C]; half precision is computed in float32.

    Returns:
        [N, C] float32, or float64 for float64 features.
    """
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    square = features.square().sum(1, keepdim=True)
    return features * torch.where(square > SHORTEST**2, square, 1).rsqrt()
