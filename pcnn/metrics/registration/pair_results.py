"""Results of pairs of clouds, and how a protocol judges them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pcnn.metrics.registration.errors import (
    inlier_ratio,
    match_distances,
    rotation_error,
    translation_error,
)
from pcnn.metrics.registration.protocols import Protocol

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class PairId(NamedTuple):
    """Identity of a pair of clouds: the scene, and the indices of target and source in it."""

    scene: str
    target: int
    source: int

    def __str__(self) -> str:
        return f"{self.scene}/{self.source} onto {self.target}"


@dataclass(frozen=True)
class PairResult:
    """Errors and matches of one estimate of a pair of clouds."""

    scene: str  # scene or sequence
    target: int  # index of the target cloud, i of gt.log's T(i, j)
    source: int  # index of the source cloud, j
    rre: float  # rotation error [deg]; NaN when no transform was found
    rte: float  # translation error [m]; NaN likewise
    rmse: float = nan  # of the true correspondences [m]; NaN when nothing states them
    inlier_ratio: float = nan  # share of right matches; NaN when none were counted
    matches: int = 0  # putative matches handed to the solver
    inliers: int = 0  # matches that agree with the estimate
    index: int = 0  # place in the scene's ground truth, from 0; -1 when nothing tells it
    seconds: float = nan  # time of matching and solving
    loss: float = nan  # training loss of the pair's batch in a validation; NaN elsewhere

    @property
    def pair(self) -> PairId:
        """Identity of the pair."""
        return PairId(self.scene, self.target, self.source)

    @property
    def consecutive(self) -> bool:
        """True where the source follows the target in time: such pairs are easy."""
        return self.source == self.target + 1

    @property
    def facts(self) -> str:
        """Errors and right matches in a line; figures that do not exist are left out."""
        parts = (
            ("RRE {:.2f} deg", self.rre),
            ("RTE {:.3f} m", self.rte),
            ("right matches {:.1f} %", 100 * self.inlier_ratio),
        )
        return "   ".join(text.format(value) for text, value in parts if value == value)


def judged(
    pair: PairId,
    truth: Tensor,  # [4, 4], source to target
    source: Tensor,  # [M, 3] points of the matches in the source
    target: Tensor,  # [M, 3] their partners
    transform: Tensor | None,  # [4, 4] float64 on the CPU; None where there is no estimate
    rules: Protocol,
    distance: float | None = None,
) -> PairResult:
    """Errors of a transform, and of the matches that it was estimated from, without an RMSE."""
    truth = truth.double().cpu()
    source, target = source.cpu(), target.cpu()
    ratio = inlier_ratio(source, target, truth, rules.inlier_distance)
    if transform is None:
        return PairResult(*pair, nan, nan, inlier_ratio=ratio, matches=len(source))
    near = rules.ransac.distance if distance is None else distance
    return PairResult(
        *pair,
        float(rotation_error(transform, truth)),
        float(translation_error(transform, truth)),
        inlier_ratio=ratio,
        matches=len(source),
        inliers=int((match_distances(source, target, transform) < near).sum()),
    )


class JudgedPairs:
    """Results of P pairs as columns, judged by a protocol. A missing value (NaN) never passes."""

    def __init__(self, results: Sequence[PairResult], rules: Protocol) -> None:
        self.results, self.rules = results, rules
        self.rre, self.rte, self.rmse, self.inlier_ratio = (
            np.array([getattr(one, name) for one in results], dtype=np.float64)
            for name in ("rre", "rte", "rmse", "inlier_ratio")
        )
        self.scene_names = sorted({one.scene for one in results})
        places = {name: place for place, name in enumerate(self.scene_names)}
        self.scenes = np.array([places[one.scene] for one in results], dtype=np.int64)
        self.counted: Flags = np.array(
            [not (rules.skip_consecutive and one.consecutive) for one in results], dtype=bool
        )
        self.registered: Flags = np.ones(len(results), dtype=bool)
        for name, limit in rules.success.thresholds.items():
            self.registered &= below(getattr(self, name), limit, rules.success.inclusive)
        self.matched: Flags = ~np.isnan(self.inlier_ratio)
        scarce = below(self.inlier_ratio, rules.inlier_share, not rules.share_inclusive)
        self.enough: Flags = self.matched & ~scarce

    def __len__(self) -> int:
        return len(self.results)

    def check(self) -> None:
        """Refuse results that would give a wrong figure."""
        if not self.results:
            raise ValueError("no pairs to summarize")
        keys = [one.pair for one in self.results]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"pair {twice} occurs twice; one result a pair is summarized")
        judged, estimated = ~np.isnan(self.rmse), ~np.isnan(self.rre)
        if self.rules.success.rmse is not None and estimated.any() and not judged.any():
            raise ValueError(
                f"protocol {self.rules.name} asks for RMSE, and no pair has one: give gt.info, or "
                "clouds to find the true correspondences in"
            )

    def averaged(self, error: str) -> Flags:
        """Pairs [P] over which ``rre`` or ``rte`` is averaged."""
        if self.rules.errors_over == "accepted":
            return self.counted & self.registered
        own = self.rules.success.thresholds.get(error, np.inf)
        limit = np.inf if self.rules.errors_over == "all" else own
        return self.counted & below(getattr(self, error), limit, self.rules.success.inclusive)


def below(values: Floats, limit: float, inclusive: bool) -> Flags:
    """Where values are below the limit; NaN never is."""
    return values <= limit if inclusive else values < limit
