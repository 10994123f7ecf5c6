"""Values, sites and gradients of a sparse layer as torch's dense layers give them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def volume_of(features: Tensor, indices: Tensor, shape: list[int], clouds: int) -> Tensor:
    """``[B, C, *shape]``, 0 elsewhere."""
    volume = features.new_zeros(clouds, *shape, features.shape[1])
    return volume.index_put(tuple(indices.long().unbind(1)), features).movedim(-1, 1)


def at(volume: Tensor, indices: Tensor) -> Tensor:
    """``[N, C]`` of the cells of a volume."""
    return volume.movedim(1, -1)[tuple(indices.long().unbind(1))]


def convolved(
    features: Tensor,
    indices: Tensor,
    shape: list[int],
    clouds: int,
    weight: Tensor,
    bias: Tensor | None,
    transposed: bool = False,
    **setting: Any,
) -> tuple[Tensor, Tensor]:
    """Dense output without bias at sites that are not reached, and the sites ``[M, 1 + d]``."""
    axes = len(shape)
    krsc = weight.movedim(-1, 1)  # [C_out, C_in, *kernel]
    layer = TRANSPOSED[axes] if transposed else CONV[axes]
    x = volume_of(features, indices, shape, clouds)
    out = layer(x, krsc.transpose(0, 1) if transposed else krsc, **setting)
    there = volume_of(torch.ones(len(indices), 1).to(features), indices, shape, clouds)
    ones = torch.ones(1, 1, *krsc.shape[2:]).to(features)
    reached = layer(there, ones, **setting) > 0.5
    if bias is not None:
        out = out + bias.view(1, -1, *[1] * axes)
    return out * reached, reached[:, 0].nonzero()
