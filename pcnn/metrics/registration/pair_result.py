"""What one estimate of one pair came to."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan


@dataclass(frozen=True)
class PairResult:
    """Errors and matches of a pair of clouds.

    Args:
        scene: scene or sequence.
        target: index of the target cloud, ``i`` of gt.log's ``T(i, j)``.
        source: index of the source cloud, ``j``.
        rre: rotation error [deg]; NaN when no transform was found.
        rte: translation error [m]; NaN likewise.
        rmse: of the true correspondences [m]; NaN when nothing states them.
        inlier_ratio: share of right matches; NaN when none were counted.
        matches: putative matches handed to the solver.
        inliers: matches that agree with the estimate.
        index: place in the scene's ground truth, from 0; -1 when nothing tells it.
        seconds: time of matching and solving.
    """

    scene: str
    target: int
    source: int
    rre: float
    rte: float
    rmse: float = nan
    inlier_ratio: float = nan
    matches: int = 0
    inliers: int = 0
    index: int = 0
    seconds: float = nan

    @property
    def consecutive(self) -> bool:
        """Whether the source follows the target in time: such pairs are easy."""
        return self.source == self.target + 1
