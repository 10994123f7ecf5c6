"""How good the descriptors of a pair of clouds are, cheaply enough for every validation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.metrics.registration import Success, inlier_ratio, rotation_error, translation_error
from pcnn.registration.matching import sampled_matches
from pcnn.registration.ransac import ransac_batch
from pcnn.registration.settings import RansacSettings


class Described(NamedTuple):
    """A pair of clouds with descriptors.

    Args:
        name: of the pair; selects what is drawn.
        source: [N, 3] places of the source's rows [m].
        source_features: [N, C].
        target: [M, 3] places of the target's rows [m].
        target_features: [M, C].
        truth: [4, 4], source to target.
    """

    name: str
    source: Tensor
    source_features: Tensor
    target: Tensor
    target_features: Tensor
    truth: Tensor


@dataclass(frozen=True)
class PairRecord:
    """Figures of a pair.

    Args:
        name: of the pair.
        inlier_ratio: share of matches that are right under the truth; 0 without matches.
        rre: rotation error of the estimate [deg]; NaN where there is none.
        rte: translation error [m]; NaN likewise.
        loss: of the batch that the pair was in.
    """

    name: str
    inlier_ratio: float
    rre: float = nan
    rte: float = nan
    loss: float = nan


class Judged(NamedTuple):
    """A pair's figures and what they were read off.

    Args:
        record: the figures.
        matches: [S, 2] int64, rows of source and target.
        estimate: [4, 4] float64 on the CPU, source to target; None where there is none.
    """

    record: PairRecord
    matches: Tensor
    estimate: Tensor | None


@dataclass(frozen=True)
class PairJudge:
    """Match random rows of two clouds, count right matches, estimate the transform.

    Args:
        hit_distance: a match is right below this residual under the truth [m].
        success: when a pair is registered.
        ransac: estimates the transform; None leaves that out.
        inlier_share: a pair counts for feature-match recall above this share of right matches.
        samples: rows drawn of each cloud.
        seed: of what is drawn, together with the pair's name: the same in every pass.

    Raises:
        ValueError: a number out of range.
    """

    hit_distance: float
    success: Success
    ransac: RansacSettings | None
    inlier_share: float = 0.05
    samples: int = 5000
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.hit_distance > 0:
            raise ValueError(f"hit_distance must be positive [m], got {self.hit_distance}")
        if not 0 <= self.inlier_share < 1:
            raise ValueError(f"inlier_share is a share in [0, 1), got {self.inlier_share}")
        if self.samples < 1:
            raise ValueError(f"samples must be 1 or more, got {self.samples}")

    def __call__(self, pairs: Sequence[Described], loss: float = nan) -> list[Judged]:
        """Judge pairs; each comes out as it would alone.

        Args:
            pairs: on one device.
            loss: kept with every record.

        Raises:
            ValueError: descriptors hold NaN or infinite numbers.
        """
        matches = [self._matches(pair) for pair in pairs]
        sources = [pair.source[rows[:, 0]] for pair, rows in zip(pairs, matches, strict=True)]
        targets = [pair.target[rows[:, 1]] for pair, rows in zip(pairs, matches, strict=True)]
        estimates: list[Tensor | None] = [None for _ in pairs]
        if self.ransac is not None:
            solutions = ransac_batch(sources, targets, self.ransac, self.seed)
            estimates = [solution.transform for solution in solutions]
        judged = []
        for pair, rows, source, target, estimate in zip(
            pairs, matches, sources, targets, estimates, strict=True
        ):
            ratio = inlier_ratio(source, target, pair.truth, self.hit_distance)
            record = PairRecord(pair.name, ratio, loss=loss)
            if estimate is not None:
                truth = pair.truth.double().cpu()
                record = replace(
                    record,
                    rre=float(rotation_error(estimate, truth)),
                    rte=float(translation_error(estimate, truth)),
                )
            judged.append(Judged(record, rows, estimate))
        return judged

    def matches_features(self, record: PairRecord) -> bool:
        """Whether a pair counts for feature-match recall."""
        return record.inlier_ratio > self.inlier_share

    def registers(self, record: PairRecord) -> bool:
        """Whether a pair counts for registration recall; without an estimate it does not."""
        rule = self.success
        for value, limit in ((record.rre, rule.rre), (record.rte, rule.rte)):
            if limit is not None and not (value <= limit if rule.inclusive else value < limit):
                return False
        return not isnan(record.rte)

    def _matches(self, pair: Described) -> Tensor:
        """Rows [S, 2] of both clouds."""
        if len(pair.source) == 0 or len(pair.target) == 0:
            return torch.zeros(0, 2, dtype=torch.int64, device=pair.source.device)
        generator = torch.Generator().manual_seed(seed_of(pair.name, self.seed))
        try:
            found = sampled_matches(
                pair.source_features,
                pair.target_features,
                self.samples,
                "one_way",
                "random_points",
                generator,
            )
        except ValueError as error:
            raise ValueError(f"{pair.name}: {error}") from error
        return torch.stack([found.source, found.target], 1)


def seed_of(name: str, seed: int) -> int:
    """A seed of 63 bits for a name, the same in every process."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def judge_of(
    benchmark: str,
    hit_distance: float | None = None,
    success_rre: float | None = None,
    success_rte: float | None = None,
    ransac_distance: float | None = None,
    hypotheses: int = 1000,
    inlier_share: float = 0.05,
    samples: int = 5000,
    seed: int = 0,
) -> PairJudge:
    """The judge of a benchmark's pairs; what is None is as below.

    | | ``threedmatch`` | ``kitti`` |
    |---|---|---|
    | a match is right within | 0.1 m | 0.3 m |
    | success | 15 deg and 0.3 m (DGR) | 5 deg and 2 m (3DFeat-Net, FCGF) |
    | RANSAC's distance | 0.05 m (Predator) | 0.3 m |

    Args:
        benchmark: ``threedmatch`` or ``kitti``.
        hit_distance: [m].
        success_rre: [deg].
        success_rte: [m].
        ransac_distance: [m].
        hypotheses: of RANSAC; 0 leaves it out.
        inlier_share: as in `PairJudge`.
        samples: as in `PairJudge`.
        seed: as in `PairJudge`.

    Raises:
        ValueError: another benchmark, or a number out of range.
    """
    usual = {"threedmatch": (0.1, 15.0, 0.3, 0.05), "kitti": (0.3, 5.0, 2.0, 0.3)}
    if benchmark not in usual:
        raise ValueError(f"benchmark must be one of {', '.join(usual)}, got {benchmark!r}")
    given = (hit_distance, success_rre, success_rte, ransac_distance)
    hit, rre, rte, distance = (
        own if value is None else value for value, own in zip(given, usual[benchmark], strict=True)
    )
    ransac = RansacSettings(distance, hypotheses=hypotheses) if hypotheses else None
    return PairJudge(hit, Success(rre=rre, rte=rte), ransac, inlier_share, samples, seed)
