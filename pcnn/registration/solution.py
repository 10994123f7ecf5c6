"""The result of a solver: a transform with the matches that agree, and other poses."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Candidates:
    """Poses that differ, most support first.

    Args:
        transforms: [K, 4, 4] float64 on the CPU, source to target.
        inliers: [K, M] bool, the matches within the distance under each.
        support: [K] float64: inliers, each less the square of its residual in distances.
    """

    transforms: Tensor
    inliers: Tensor
    support: Tensor


@dataclass(frozen=True, eq=False)
class Solution:
    """An estimated transform and the matches that agree with it.

    Args:
        transform: [4, 4] float64 on the CPU, source to target; None when no hypothesis passed:
            there is no estimate, and the identity would be a wrong one.
        inliers: [M] bool on the CPU, matches within the distance.
        hypotheses: tried, those included that failed a check.
        candidates: of a solver that finds several poses, the first of them is the transform.
    """

    transform: Tensor | None
    inliers: Tensor
    hypotheses: int
    candidates: Candidates | None = None


def checked_shapes(source: Tensor, target: Tensor) -> None:
    """Refuse points of matches that are not [M, 3] on both sides.

    Raises:
        ValueError: other shapes.
    """
    if source.ndim != 2 or source.shape[1] != 3 or source.shape != target.shape:
        raise ValueError(
            "matched points must be [M, 3] on both sides, got "
            f"{list(source.shape)} and {list(target.shape)}"
        )
