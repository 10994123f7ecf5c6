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


def checked_shapes(source: Tensor, target: Tensor) -> None:
    """Refuse points of matches that are not [M, 3] on both sides."""
    if source.ndim != 2 or source.shape[1] != 3 or source.shape != target.shape:
        raise ValueError(
            "matched points must be [M, 3] on both sides, got "
            f"{list(source.shape)} and {list(target.shape)}"
        )


class Found(NamedTuple):
    """Poses of pairs on the device of the matches, as the first three rows of their transforms."""

    rows: Tensor  # [B, K, 3, 4] float64, most support first
    support: Tensor  # [B, K] float64, negative: no pose
    agree: Tensor  # [B, K, M] bool
    tried: Tensor  # [B] int64, hypotheses
    finite: Tensor  # [B] bool, whether all coordinates are

    def on_host(self, counts: Sequence[int]) -> list[Solution]:
        """Wait for the poses, and make a solution of those of every pair with so many matches."""
        rows, support, agree, tried, finite = (one.cpu() for one in self)
        check_finite(finite)
        pairs = zip(rows, support, agree, tried.tolist(), counts, strict=True)
        return [_solution(*pair) for pair in pairs]


def _solution(rows: Tensor, support: Tensor, agree: Tensor, tried: int, count: int) -> Solution:
    kept = support > 0
    if not bool(kept.any()):
        return Solution(None, torch.zeros(count, dtype=torch.bool), tried)
    transforms, inliers = whole(rows[kept]), agree[kept, :count]
    candidates = Candidates(transforms, inliers, support[kept])
    return Solution(transforms[0], inliers[0], tried, candidates)


def check_finite(finite: Tensor) -> None:
    """Refuse pairs whose coordinates are not all finite."""
    if not bool(finite.all()):
        raise ValueError("matched points hold NaN or infinite coordinates")
