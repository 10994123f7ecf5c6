"""The result of a solver: a transform with the matches that agree, and other poses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.registration.transforms import whole


@dataclass(frozen=True, eq=False)
class Candidates:
    """Poses that differ, most support first."""

    transforms: Tensor  # [K, 4, 4] float64 on the CPU, source to target
    inliers: Tensor  # [K, M] bool, the matches within the distance under each
    support: Tensor  # [K] float64: inliers, each less the square of its residual in distances


@dataclass(frozen=True, eq=False)
class Solution:
    """An estimated transform and the matches that agree with it."""

    transform: Tensor | None  # [4, 4] float64 on the CPU, source to target
    inliers: Tensor  # [M] bool on the CPU, matches within the distance
    hypotheses: int  # tried, those included that failed a check
    candidates: Candidates | None = None  # of a solver that finds several poses


class Found(NamedTuple):
    """Poses of pairs on the device of the matches, as the first three rows of their transforms."""

    rows: Tensor  # [B, K, 3, 4] float64, most support first
    support: Tensor  # [B, K] float64, negative: no pose
    agree: Tensor  # [B, K, M] bool
    tried: Tensor  # [B] int64, hypotheses

    def on_host(self, counts: Sequence[int]) -> list[Solution]:
        """Wait for the poses, and make a solution of those of every pair with so many matches."""
        rows, support, tried, agree = on_host(self.rows, self.support, self.tried, self.agree)
        pairs = zip(rows, support, agree, tried.tolist(), counts, strict=True)
        return [_solution(*pair) for pair in pairs]


def on_host(*given: Tensor) -> list[Tensor]:
    """Wait once for several tensors; wide numbers stand before narrow ones."""
    if not given[0].is_cuda:
        return list(given)
    flat = torch.cat([one.flatten().view(torch.uint8) for one in given]).cpu()
    parts = flat.split([one.nbytes for one in given])
    return [part.view(one.dtype).view(one.shape) for part, one in zip(parts, given, strict=True)]


def _solution(rows: Tensor, support: Tensor, agree: Tensor, tried: int, count: int) -> Solution:
    kept = support > 0
    if not bool(kept.any()):
        return Solution(None, torch.zeros(count, dtype=torch.bool), tried)
    transforms, inliers = whole(rows[kept]), agree[kept, :count]
    candidates = Candidates(transforms, inliers, support[kept])
    return Solution(transforms[0], inliers[0], tried, candidates)
