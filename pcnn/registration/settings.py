"""How a transform is estimated from matches; protocols name one of these each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from pcnn.config.values import check_fields
from pcnn.ranges import Length, Matches, Natural, Share

#: Voxels within which the ends of a match agree, as the verifier was fitted.
AGREE = 1.5

#: Which matches are kept: nearest neighbours from source to target, or those that agree both ways.
Matching = Literal["one_way", "mutual"]
#: How a number of samples is drawn: points before matching, matches.
Sampling = Literal["random_points", "random_matches"]
Solver = Literal["ransac", "cliques"]


@dataclass(frozen=True)
class RansacSettings:
    """Settings of RANSAC."""

    distance: Length  # largest residual of an inlier [m]
    points: Matches = 3  # in a hypothesis
    hypotheses: Natural = 50_000  # number tried at most; 0 estimates nothing
    edge_length: Share = 0.9  # smallest ratio of an edge in one cloud to that in the other; 0: any
    confidence: Annotated[float, Interval(gt=0, le=1)] = 1.0  # that no better one was missed

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class EstimateSettings:
    """How a transform is estimated."""

    ransac: RansacSettings  # what RANSAC tries and accepts
    solver: Solver = "ransac"  # ransac or cliques
    matching: Matching = "one_way"  # one_way or mutual
    sampling: Sampling = "random_points"  # random_points or random_matches
    refine: bool = True  # fit the best hypotheses of ransac and cliques again to what agrees
    seed: int = 0  # of samples and hypotheses
    view_points: bool = True
    verifier: Any = None  # a Verifier, which chooses among the poses of cliques
    surfaces: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
