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
    """The agreement of the matches of a pair with any transforms.

    Args:
        source: [M, 3] float64 points of the matches, about their mean.
        target: [M, 3] their partners, likewise.
        distance: residual of a match that no longer agrees [m].
    """

    def __init__(self, source: Tensor, target: Tensor, distance: float) -> None:
        self.scale = distance**2
        both = (target[:, :, None] * source[:, None, :]).flatten(1)  # [M, 9] q pᵀ
        square = (source.square() + target.square()).sum(1, keepdim=True)
        one = torch.ones_like(square)
        self.products = torch.cat([both, source, target, square, one], 1).T.contiguous()  # [17, M]

    def __call__(self, transforms: Tensor) -> Tensor:
        """Agreement [S, M] in 0..1 of transforms [S, 4, 4] float64, rotations with translations."""
        rotation, shift = transforms[:, :3, :3], transforms[:, :3, 3]
        back = (rotation * shift[:, :, None]).sum(1)  # Rᵀ t
        one = torch.ones_like(shift[:, :1])
        square = shift.square().sum(1, keepdim=True)
        parts = [2 * rotation.flatten(1), -2 * back, 2 * shift, -one, self.scale - square]
        factors = torch.cat(parts, 1) / self.scale  # [S, 17]
        return (factors @ self.products).clamp_(min=0)

    def fitted(self, weight: Tensor) -> Tensor:
        """The transforms [S, 4, 4] that fit the matches best, with weights [S, M]."""
        sums = weight @ self.products.T  # [S, 17]
        sums = sums / sums[:, 16:].clamp(min=1e-12)
        both, p, q, square, _ = sums.split((9, 3, 3, 1, 1), dim=1)
        covariance = both.unflatten(1, (3, 3)).mT - p[:, :, None] * q[:, None, :]
        above = (square.squeeze(1) - p.square().sum(1) - q.square().sum(1)) / 2
        return turned_onto(covariance, p, q, above)

    def support(self, transforms: Tensor) -> Tensor:
        """Sums [S] of the agreement of all matches."""
        size = max(RESIDUALS // max(self.products.shape[1], 1), 1)
        return torch.cat([self(part).sum(1) for part in transforms.split(size)])
