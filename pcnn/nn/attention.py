"""Attention inside windows of sites, with rotary position encoding in three dimensions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from pcnn.ops.windows import Windows

#: Cosines and sines of the angles that rows are turned by, ``[N, 1, 3, pairs]`` float32 each.
Angles = tuple[Tensor, Tensor]

#: Head dimensions are padded to a multiple of this, which the fused kernels of torch ask for.
_ALIGNED = 8


def rotary_angles(positions: Tensor, channels: int, base: float = 100.0) -> Angles:
    """Angles of the rotary encoding of places in space (PointROPE, Yue et al. 2025).

    A third of the channels of a head goes with each axis. Their first half and their second half
    are pairs, and pair i is turned by ``position * base^(-i / pairs)``. So the product of a query
    and a key depends on the difference of their positions alone.
    """
    if channels < 6 or channels % 6:
        raise ValueError(f"channels of a head must be a multiple of 6, got {channels}")
    pairs = channels // 6
    exponent = torch.arange(pairs, device=positions.device) / -pairs
    angle = (positions[:, :, None] * base**exponent)[:, None]  # [N, 1, 3, pairs]
    return angle.cos(), angle.sin()


def rotated(x: Tensor, angles: Angles) -> Tensor:
    """``[N, H, D]`` turned by the angles of its rows, in their dtype; returned in its own."""
    cos, sin = angles
    u, v = x.to(cos.dtype).unflatten(2, (3, 2, -1)).unbind(3)  # [N, H, 3, pairs] each
    return torch.stack([u * cos - v * sin, v * cos + u * sin], dim=3).flatten(2).to(x.dtype)


class WindowAttention(nn.Module):
    """Multi-head attention of every site to the sites of its window."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        if channels % heads:
            raise ValueError(f"{heads} heads do not divide {channels} channels")
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.project = nn.Linear(channels, channels)

    def forward(self, features: Tensor, windows: Windows, angles: Angles, order: int) -> Tensor:
        """Features ``[N, C]`` to ``[N, C]``."""
        sites, channels = features.shape
        q, k, v = self.qkv(features).view(sites, 3, self.heads, -1).unbind(1)  # [N, H, D]
        size = q.shape[2]
        every = torch.stack([rotated(q, angles), rotated(k, angles), v], dim=1)
        every = pad(every, (0, -size % _ALIGNED))
        rows = windows.rows[order]  # [M, W]
        inside = every.index_select(0, rows.flatten()).view(*rows.shape, *every.shape[1:])
        q, k, v = inside.permute(2, 0, 3, 1, 4).unbind()  # [M, H, W, D]
        keys = windows.there[:, None, None, :]  # [M, 1, 1, W]
        out = scaled_dot_product_attention(q, k, v, keys, scale=size**-0.5)
        out = out[..., :size].transpose(1, 2).reshape(-1, channels)  # [M * W, C]
        found: Tensor = self.project(out.index_select(0, windows.place[order]))
        return found
