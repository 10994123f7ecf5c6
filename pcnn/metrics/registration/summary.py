"""RR, FMR, IR, RRE and RTE of a set of pairs under a protocol, and recall over its thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.metrics.registration.bootstrap import DRAWS, Figure, deviation, mean_of, median
from pcnn.metrics.registration.pair_results import JudgedPairs, PairResult, below
from pcnn.metrics.registration.protocols import Protocol

#: Errors over whose threshold recall is drawn: label of the axis, and its end.
ERRORS = {"rre": ("RRE deg", 15.0), "rte": ("RTE m", 1.0), "rmse": ("RMSE m", 0.5)}

#: By label of an axis: thresholds, and recall (0..1) at each by name of the line.
Curves = dict[str, tuple[list[float], dict[str, list[float]]]]


@dataclass(frozen=True)
class Summary:
    """Figures of a set of pairs."""

    protocol: Protocol  # their rules
    rr: Figure  # registration recall, as the protocol averages
    rr_scenes: Figure  # the same as a mean of scene means
    rr_pairs: Figure  # the same as a mean of pairs
    fmr: Figure  # feature-match recall, over every pair
    ir: Figure  # inlier ratio, over every pair
    rre: Figure  # mean rotation error [deg], over the pairs the protocol says
    rte: Figure  # mean translation error [m], likewise
    rre_median: Figure  # median rotation error [deg] over the same pairs
    rte_median: Figure  # median translation error [m], likewise
    rre_std: Figure  # standard deviation of the rotation error [deg] over the same pairs
    rte_std: Figure  # standard deviation of the translation error [m], likewise
    pairs: int  # number of pairs given
    counted: int  # pairs that count for RR
    no_estimate: int  # counted pairs without a transform; they are failures
    unjudged: int  # counted pairs whose ground truth states no correspondences; failures too
    per_scene: tuple[tuple[str, int, float, float, float], ...]  # name


def summarize(
    results: Sequence[PairResult], protocol: Protocol, draws: int = DRAWS, seed: int = 0
) -> Summary:
    """Figures of pairs under a protocol, each with a 95 % bootstrap interval over pairs."""
    pairs = JudgedPairs(results, protocol)
    pairs.check()
    judged = np.isnan(pairs.rmse) & ~np.isnan(pairs.rre) & (protocol.success.rmse is not None)

    def mean(
        values: NDArray, which: NDArray[np.bool_], over: str = protocol.average, centre: Any = None
    ) -> Figure:
        return mean_of(values.astype(np.float64), which, pairs.scenes, over, draws, seed, centre)

    return Summary(
        protocol,
        rr=mean(pairs.registered, pairs.counted),
        rr_scenes=mean(pairs.registered, pairs.counted, "scenes"),
        rr_pairs=mean(pairs.registered, pairs.counted, "pairs"),
        fmr=mean(pairs.enough, pairs.matched),
        ir=mean(pairs.inlier_ratio, pairs.matched),
        rre=mean(pairs.rre, pairs.averaged("rre")),
        rte=mean(pairs.rte, pairs.averaged("rte")),
        rre_median=mean(pairs.rre, pairs.averaged("rre"), centre=median),
        rte_median=mean(pairs.rte, pairs.averaged("rte"), centre=median),
        rre_std=mean(pairs.rre, pairs.averaged("rre"), centre=deviation),
        rte_std=mean(pairs.rte, pairs.averaged("rte"), centre=deviation),
        pairs=len(pairs),
        counted=int(pairs.counted.sum()),
        no_estimate=int((pairs.counted & np.isnan(pairs.rre)).sum()),
        unjudged=int((pairs.counted & judged).sum()),
        per_scene=tuple(_scene(pairs, place) for place in range(len(pairs.scene_names))),
    )


def _scene(pairs: JudgedPairs, place: int) -> tuple[str, int, float, float, float]:
    here = pairs.scenes == place
    rr, fmr, ir = (
        mean_of(values.astype(np.float64), which & here, np.zeros_like(here, int), "pairs", 0).value
        for values, which in (
            (pairs.registered, pairs.counted),
            (pairs.enough, pairs.matched),
            (pairs.inlier_ratio, pairs.matched),
        )
    )
    return pairs.scene_names[place], int((pairs.counted & here).sum()), rr, fmr, ir


def recall_curve(
    results: Sequence[PairResult], protocol: Protocol, error: str, limits: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Share of the counted pairs below each limit of one error, averaged as the protocol does."""
    if error not in ERRORS:
        raise ValueError(f"a recall curve is over rre, rte or rmse, got {error!r}")
    pairs = JudgedPairs(results, protocol)
    passed = [below(getattr(pairs, error), float(limit), True) for limit in limits]
    return np.array(
        [
            mean_of(one.astype(float), pairs.counted, pairs.scenes, protocol.average, draws=0).value
            for one in passed
        ]
    )


def recall_curves(results: Mapping[str, Sequence[PairResult]], protocol: Protocol) -> Curves:
    """Recall against the threshold of every error that the pairs have."""
    curves: Curves = {}
    first = next(iter(results.values()))
    for error, (label, end) in ERRORS.items():
        if not np.isnan([getattr(one, error) for one in first]).all():
            limits = np.linspace(0, end, 61)
            lines = {
                name: recall_curve(pairs, protocol, error, limits).tolist()
                for name, pairs in results.items()
            }
            curves[label] = (limits.tolist(), lines)
    return curves
