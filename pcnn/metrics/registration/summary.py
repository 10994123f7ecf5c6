"""RR, FMR, IR, RRE and RTE of a set of pairs under a protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.metrics.registration.pair_results import JudgedPairs, PairResult
from pcnn.metrics.registration.protocols import Protocol


@dataclass(frozen=True)
class Summary:
    """Figures of a set of pairs."""

    protocol: Protocol  # their rules
    rr: float  # registration recall, as the protocol averages
    rr_scenes: float  # the same as a mean of scene means
    rr_pairs: float  # the same as a mean of pairs
    fmr: float  # feature-match recall, over every pair
    ir: float  # inlier ratio, over every pair
    rre: float  # mean rotation error [deg], over the pairs the protocol says
    rte: float  # mean translation error [m], likewise
    pairs: int  # number of pairs given
    counted: int  # pairs that count for RR
    no_estimate: int  # counted pairs without a transform; they are failures
    unjudged: int  # counted pairs whose ground truth states no correspondences; failures too


def mean_of(
    values: NDArray[Any],  # [P], of every pair
    counted: NDArray[np.bool_],  # [P] which of them enter the mean
    scenes: NDArray[np.integer],  # [P] scene of every pair
    over: str,
) -> float:
    """Mean of what is known of the counted pairs, or of the means of their scenes."""
    known = counted & ~np.isnan(values)
    if not known.any():
        return nan
    if over == "pairs":
        return float(np.mean(values[known]))
    here = np.unique(scenes[known])
    return float(np.mean([np.mean(values[known & (scenes == scene)]) for scene in here]))


def summarize(results: Sequence[PairResult], protocol: Protocol) -> Summary:
    """Figures of pairs under a protocol; NaN over nothing."""
    pairs = JudgedPairs(results, protocol)
    pairs.check()
    judged = np.isnan(pairs.rmse) & ~np.isnan(pairs.rre) & (protocol.success.rmse is not None)

    def mean(values: NDArray, which: NDArray[np.bool_], over: str = protocol.average) -> float:
        return mean_of(values.astype(np.float64), which, pairs.scenes, over)

    return Summary(
        protocol,
        rr=mean(pairs.registered, pairs.counted),
        rr_scenes=mean(pairs.registered, pairs.counted, "scenes"),
        rr_pairs=mean(pairs.registered, pairs.counted, "pairs"),
        fmr=mean(pairs.enough, pairs.matched),
        ir=mean(pairs.inlier_ratio, pairs.matched),
        rre=mean(pairs.rre, pairs.averaged("rre")),
        rte=mean(pairs.rte, pairs.averaged("rte")),
        pairs=len(pairs),
        counted=int(pairs.counted.sum()),
        no_estimate=int((pairs.counted & np.isnan(pairs.rre)).sum()),
        unjudged=int((pairs.counted & judged).sum()),
    )
