"""Weights of exported networks in 8 bits, each group of them with a scale.

A group is one column of the last two dimensions: of a convolution `[K, C_in, C_out]` the inputs of
one slot and one output. Its scale is s = max |w| / 127, and a weight is kept as q = round(w / s),
so that s q is within s / 2 of it. The numbers q stand under the weight's name, s beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from pcnn.errors import FileError

#: Follows the name of a weight in the name of its scales.
SCALE = ":scale"
_MOST = 127


def packed(name: str, weight: Tensor) -> dict[str, Tensor]:
    """A weight in 8 bits and its scales.

    Scales are float32, because float16 would make 0 of those of weights below 1e-6.
    """
    weight = weight.float()
    # never 0: what divides by it stays finite where all weights of a group are 0
    scale = (weight.abs().amax(-2, keepdim=True) / _MOST).clamp(min=torch.finfo().tiny)
    if not bool(torch.isfinite(_MOST * scale).all()):
        raise ValueError(f"{name} holds NaN or infinite numbers: check the training")
    return {name: (weight / scale).round().to(torch.int8), f"{name}{SCALE}": scale}


def restored(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Tensors of a file, those in 8 bits as s q in float32, the others as they are."""
    scales = {name: value for name, value in tensors.items() if name.endswith(SCALE)}
    found = {}
    for name, value in tensors.items():
        if name.endswith(SCALE):
            continue
        scale = scales.pop(f"{name}{SCALE}", None)
        in_eight = value.dtype == torch.int8 and value.ndim > 1
        if in_eight != (scale is not None):
            wrong = "8 bits have no scales" if in_eight else "scales belong to no 8 bits"
            raise FileError(path, f"damaged, {name}: {wrong}; export it again")
        found[name] = value if scale is None else _product(name, value, scale, path)
    for name in scales:
        raise FileError(path, f"damaged, {name}: scales belong to no weight; export it again")
    return found


def _product(name: str, value: Tensor, scale: Tensor, path: Path) -> Tensor:
    """A weight, of its 8 bits and its scales."""
    shape = [*value.shape[:-2], 1, value.shape[-1]]
    if scale.dtype != torch.float32 or list(scale.shape) != shape:
        kind = f"{scale.dtype}".removeprefix("torch.")
        raise FileError(
            path,
            f"damaged, the scales of {name} must be float32 {shape}, found {kind} "
            f"{list(scale.shape)}; export it again",
        )
    weight = value * scale
    if not bool((scale > 0).all()) or not bool(torch.isfinite(weight).all()):
        raise FileError(
            path, f"damaged, the scales of {name} must be above 0 and finite; export it again"
        )
    return weight
