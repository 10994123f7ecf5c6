"""What a solver hands back."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Solution:
    """An estimated transform and the matches that agree with it.

    Args:
        transform: [4, 4] float64 on the CPU, source to target; None when no hypothesis passed:
            there is no estimate, and the identity would be a wrong one.
        inliers: [M] bool on the CPU, matches within the distance.
        hypotheses: tried, those included that failed a check.
    """

    transform: Tensor | None
    inliers: Tensor
    hypotheses: int
