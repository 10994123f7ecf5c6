"""The best of many poses, each unlike those before it."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def distinct(places: Tensor, score: Tensor, apart: float, most: int) -> tuple[Tensor, Tensor]:
    """Poses with the highest score that put places elsewhere than those with a higher one."""
    spread = places.flatten(2)
    gap = torch.cdist(spread, spread)  # [B, S, S]
    same = gap < apart * math.sqrt(max(places.shape[2], 1))
    order = score.argsort(dim=1, descending=True, stable=True)
    most = min(most, score.shape[1])
    if score.is_cuda:
        return without_a_look(same, order, most)
    rows, there = np.zeros((2, len(score), most), dtype=np.int64)
    for pair, (ranked, alike) in enumerate(zip(order.numpy(), same.numpy(), strict=True)):
        taken = np.zeros(len(alike), dtype=bool)
        for place in range(most):
            first = taken[ranked].argmin()  # that is free
            row = ranked[first]
            if taken[row]:
                break
            rows[pair, place], there[pair, place] = row, True
            taken |= alike[row]
            taken[row] = True
    return torch.from_numpy(rows), torch.from_numpy(there.astype(bool))


def without_a_look(same: Tensor, order: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The same in launches alone: the host sees no number."""
    free = torch.ones_like(order, dtype=torch.float32)  # [B, S], by rank
    number = order.shape[1]
    at = order[:, :, None].expand(-1, -1, number)
    ranked = same.gather(1, at).gather(2, at.mT).float()  # [B, S, S]
    ranked.diagonal(dim1=1, dim2=2).fill_(1)
    keeps = 1 - ranked
    found, there = [], []
    for _ in range(most):
        best, first = free.max(1, keepdim=True)  # of equal ones the first
        found.append(first)
        there.append(best)
        free = free * keeps.gather(1, first[:, :, None].expand(-1, -1, number)).squeeze(1)
    return order.gather(1, torch.cat(found, 1)), torch.cat(there, 1) > 0
