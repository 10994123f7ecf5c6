"""How well matches agree with rigid transforms: 1 - (residual / distance)², 0 beyond the distance.

The square of a residual is linear in products of coordinates, ``|p|² + |q|² + |t|² + 2 (Rᵀt)·p
- 2 t·q - 2 qᵀRp``: all residuals of many transforms are one product of matrices, in float64, and so
are the sums that a weighted fit to the matches is made of.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.rigid_fit import turned_onto

RESIDUALS = 1 << 20  # at once: those of a block stay in a CPU's cache


class Agreement:
    """The agreement of the matches of pairs with any transforms."""

    def __init__(self, source: Tensor, target: Tensor, distance: float) -> None:
        self.scale = distance**2
        one = torch.ones_like(source[..., :1])
        moved = torch.cat([source, one], -1)  # [B, M, 4]
        both = (target[..., :, None] * (2 * moved)[..., None, :]).flatten(-2)  # 2 q (p, 1)ᵀ
        # [B, 16, M]: rows multiply those of [R t], then Rᵀt and |t|²
        self.products = (torch.cat([both, -2 * source, -one], -1) / self.scale).mT.contiguous()
        square = (source.square() + target.square()).sum(-1)
        self.alone = (1 - square / self.scale)[:, None]  # [B, 1, M]

    def __call__(self, rows: Tensor) -> Tensor:
        """Agreement [B, S, M] in 0..1 of transforms, of their first three rows [B, S, 3, 4]."""
        back = rows.mT @ rows[..., 3:]  # Rᵀt, |t|²
        factors = torch.cat([rows.flatten(-2), back.flatten(-2)], -1)  # [B, S, 16]
        return torch.baddbmm(self.alone, factors, self.products).clamp_(min=0)

    def fitted(self, weight: Tensor) -> Tensor:
        """Rows [B, S, 3, 4] of the transforms that fit the matches best, with weights [B, S, M]."""
        sums = weight @ self.products.mT  # [B, S, 16]
        total = sums[..., 15:].clamp(max=-1e-12 / self.scale)
        both, p, _ = (sums / (-2 * total)).flatten(0, -2).split((12, 3, 1), dim=1)
        both = both.unflatten(1, (3, 4))  # [B S, 3, 4] mean of q pᵀ, and of q
        p, q = -p, both[:, :, 3]
        covariance = torch.baddbmm(both[:, :, :3], q[:, :, None], p[:, None, :], alpha=-1)
        return turned_onto(covariance, p, q).unflatten(0, weight.shape[:-1])

    def support(self, rows: Tensor) -> Tensor:
        """Sums [B, S] of the agreement of all matches."""
        each = max(self.products[:, 0].numel(), 1)
        parts = rows.split(max(RESIDUALS // each, 1), dim=1)
        return torch.cat([self(part).sum(-1) for part in parts], -1)
