"""The result of a solver: a transform with the matches that agree, and other poses."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


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
