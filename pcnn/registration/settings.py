"""How a transform is estimated from matches; protocols name one of these each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from pcnn.registration.verifier import Verifier

#: Voxels within which the ends of a match agree, as the verifier was fitted.
AGREE = 1.5

Matching = Literal["one_way", "mutual"]
Sampling = Literal["random_points", "random_matches", "top_k", "scores", "top_scores"]
Solver = Literal["ransac", "cliques", "open3d"]

#: Which matches are kept: nearest neighbours from source to target, or those that agree both ways.
MATCHINGS: tuple[str, ...] = get_args(Matching)
#: How a number of samples is drawn: points before matching, matches at random, the best matches;
#: points before matching by the scores of a network's head, with that probability or the best.
SAMPLINGS: tuple[str, ...] = get_args(Sampling)
SOLVERS: tuple[str, ...] = get_args(Solver)


@dataclass(frozen=True)
class RansacSettings:
    """Settings of RANSAC."""

    distance: float  # largest residual of an inlier [m]
    points: int = 3  # matches in a hypothesis, 3 or more
    hypotheses: int = 50_000  # number tried at most; 0 estimates nothing
    edge_length: float = 0.9
    confidence: float = 1.0

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


@dataclass(frozen=True)
class EstimateSettings:
    """How a transform is estimated."""

    ransac: RansacSettings  # what RANSAC tries and accepts
    solver: Solver = "ransac"  # ransac (on any device)
    matching: Matching = "one_way"  # one_way or mutual
    sampling: Sampling = "random_points"  # random_points
    refine: bool = True  # fit the best hypotheses of ransac and cliques again to what agrees
    seed: int = 0  # of samples and hypotheses
    view_points: bool = True
    verifier: Verifier | None = None  # chooses among the poses of cliques
    surfaces: bool = False

    def __post_init__(self) -> None:
        for what, value, names in (
            ("solver", self.solver, SOLVERS),
            ("matching", self.matching, MATCHINGS),
            ("sampling", self.sampling, SAMPLINGS),
        ):
            if value not in names:
                raise ValueError(f"{what} must be one of {', '.join(names)}, got {value!r}")
