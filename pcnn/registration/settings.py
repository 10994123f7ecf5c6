"""How a transform is estimated from matches; protocols name one of these each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

Matching = Literal["one_way", "mutual"]
Sampling = Literal["random_points", "random_matches", "top_k"]

#: Which matches are kept: nearest neighbours from source to target, or those that agree both ways.
MATCHINGS: tuple[str, ...] = get_args(Matching)
#: How a number of samples is drawn: points before matching, matches at random, the best matches.
SAMPLINGS: tuple[str, ...] = get_args(Sampling)


@dataclass(frozen=True)
class RansacSettings:
    """What RANSAC tries and accepts.

    Args:
        distance: largest residual of an inlier [m].
        points: matches in a hypothesis, 3 or more.
        hypotheses: number tried at most; 0 estimates nothing.
        edge_length: smallest ratio of an edge between two points of a hypothesis in one cloud to
            that in the other; 0 switches the check off.
        confidence: stop when a better hypothesis has been missed with less than 1 - this
            probability; 1 tries all of them.
        scale: largest factor by which the target may be larger or smaller than the source; 1 tries
            rigid transforms alone, above it the linear part of a transform is a rotation times its
            scale.
    """

    distance: float
    points: int = 3
    hypotheses: int = 50_000
    edge_length: float = 0.9
    confidence: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.distance < math.inf:
            raise ValueError(f"RANSAC's distance must be positive [m], got {self.distance}")
        if self.points < 3:
            raise ValueError(f"a hypothesis needs at least 3 matches, got points={self.points}")
        if self.hypotheses < 0:
            raise ValueError(f"hypotheses must be at least 0, got {self.hypotheses}")
        if not 0 <= self.edge_length <= 1:
            raise ValueError(f"edge_length is a ratio in 0..1, got {self.edge_length}")
        if not 0 < self.confidence <= 1:
            raise ValueError(f"confidence is a probability in (0, 1], got {self.confidence}")
        if not 1 <= self.scale < math.inf:
            raise ValueError(f"scale is a factor of at least 1, got {self.scale}")
