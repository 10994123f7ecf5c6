"""Scores of transforms over matched points: a kernel on a GPU, blocks of residuals elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor

ENTRIES = 1 << 24  # residuals at once


def hypothesis_scores(
    transforms: Tensor, source: Tensor, target: Tensor, distance: float
) -> tuple[Tensor, Tensor]:
    """Count the matches that agree with every transform, and add up their squared residuals."""
    if source.is_cuda:
        from pcnn.kernels import hypothesis_scores as kernel

        return kernel.hypothesis_scores(transforms, source, target, distance)
    counts, sums = [], []
    for part in transforms.float().split(max(ENTRIES // len(source), 1)):
        square = _squares(part, source, target)  # [S, M]
        near = square < distance**2
        counts.append(near.sum(1))
        sums.append(torch.where(near, square, 0).sum(1) / distance**2)
    return torch.cat(counts), torch.cat(sums)


def _squares(transforms: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Squared residuals [S, M] of matches, one axis after the other to hold little at once."""
    total = torch.zeros(len(transforms), len(source), device=source.device)
    for axis in range(3):
        row = transforms[:, axis]  # [S, 4]
        gap = row[:, 3:] - target[:, axis]
        for other in range(3):
            gap = torch.addcmul(gap, row[:, other : other + 1], source[:, other])
        total.addcmul_(gap, gap)
    return total
