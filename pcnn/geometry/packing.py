"""Voxel coordinates as one sorted integer: ``0 | batch 9 | x 18 | y 18 | z 18`` in int64."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: Bits of a coordinate, and left shifts of x, y, z and the batch, as in ``csrc/key_fields.cuh``.
AXIS_BITS = 18
SHIFTS = (2 * AXIS_BITS, AXIS_BITS, 0)
BATCH_SHIFT = 3 * AXIS_BITS

#: Bias of every axis: it holds ``-HALF .. HALF - 1``.
HALF = 1 << (AXIS_BITS - 1)

#: The largest key, behind all sites: that of a row without one.
SENTINEL = (1 << 63) - 1

#: Largest number of clouds in a batch.
MAX_BATCH = 511

_BIASES = sum(HALF << shift for shift in SHIFTS)


def pack(coords: Tensor) -> Tensor:
    """Pack integer coordinates ``[N, 4]`` (batch, x, y, z) to ``[N]`` int64."""
    if coords.ndim != 2 or coords.shape[1] != 4:
        raise ValueError(f"coords must be [N, 4] (batch, x, y, z), got {tuple(coords.shape)}")
    if coords.is_floating_point() or coords.is_complex() or coords.dtype == torch.bool:
        raise ValueError(f"coords must hold integers, got {coords.dtype}")
    return pack_fields(*coords.to(torch.int64).unbind(1))


def pack_fields(batch: Tensor | None, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """`pack` of int64 fields ``[N]`` each; no batch: all are of one cloud."""
    keys = (z + _BIASES).add_(y, alpha=1 << SHIFTS[1]).add_(x, alpha=1 << SHIFTS[0])
    return keys if batch is None else keys.add_(batch, alpha=1 << BATCH_SHIFT)


def unpack(keys: Tensor) -> Tensor:
    """Invert `pack`: ``[N]`` int64 keys to ``[N, 4]`` int32 (batch, x, y, z)."""
    axes = [(keys >> shift & (1 << AXIS_BITS) - 1) - HALF for shift in SHIFTS]
    return torch.stack([keys >> BATCH_SHIFT, *axes], dim=1).to(torch.int32)


def delta(offset: Sequence[int], shifts: Sequence[int] = SHIFTS) -> int:
    """Difference of two keys of one cloud whose coordinates differ by ``offset`` (x, y, z)."""
    return sum(value << shift for value, shift in zip(offset, shifts, strict=True))


def check_bound(bound: int, reach: int, subject: str) -> None:
    """Refuse coordinates so large that a neighbour's key would borrow from another field."""
    if bound + reach >= HALF:
        raise ValueError(
            f"{subject}: coordinates reach {bound} voxels and the kernel {reach} more, but a "
            f"packed key holds at most {HALF - 1}; centre the cloud or use larger voxels"
        )
