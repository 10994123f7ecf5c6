"""RR, FMR, IR, RRE and RTE of a set of pairs under a protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.metrics.registration.bootstrap import DRAWS, Figure, mean_of, median_of
from pcnn.metrics.registration.pair_result import PairResult
from pcnn.metrics.registration.protocols import Protocol, Success


@dataclass(frozen=True)
class Summary:
    """Figures of a set of pairs.

    Args:
        protocol: their rules.
        rr: registration recall, as the protocol averages.
        rr_scenes: the same as a mean of scene means.
        rr_pairs: the same as a mean of pairs.
        fmr: feature-match recall, over every pair.
        ir: inlier ratio, over every pair.
        rre: mean rotation error [deg], over the pairs the protocol says.
        rte: mean translation error [m], likewise.
        rre_median: median rotation error [deg] over the same pairs; where the protocol averages
            over scenes the mean of the scenes' medians, which Predator prints.
        rte_median: median translation error [m], likewise.
        pairs: number of pairs given.
        counted: pairs that count for RR.
        no_estimate: counted pairs without a transform; they are failures.
        unjudged: counted pairs whose ground truth states no correspondences; failures too.
        per_scene: name, counted pairs, RR, FMR and IR of every scene.
    """

    protocol: Protocol
    rr: Figure
    rr_scenes: Figure
    rr_pairs: Figure
    fmr: Figure
    ir: Figure
    rre: Figure
    rte: Figure
    rre_median: Figure
    rte_median: Figure
    pairs: int
    counted: int
    no_estimate: int
    unjudged: int
    per_scene: tuple[tuple[str, int, float, float, float], ...]


def succeeded(results: Sequence[PairResult], rule: Success) -> NDArray[np.bool_]:
    """Which pairs are registered, [P]; a missing error (NaN) never passes."""
    passed = np.ones(len(results), dtype=bool)
    for name in ("rre", "rte", "rmse"):
        limit = getattr(rule, name)
        if limit is not None:
            passed &= below(column(results, name), limit, rule.inclusive)
    return passed


def counts_for_recall(results: Sequence[PairResult], protocol: Protocol) -> NDArray[np.bool_]:
    """Which pairs count for RR, RRE and RTE, [P].

    Raises:
        ValueError: the protocol loses the first pair of a scene, and nothing tells which that is.
    """
    unknown = [result for result in results if result.index < 0]
    if protocol.lose_first and unknown:
        raise ValueError(
            f"protocol {protocol.name} loses the first pair of every scene, and the results do not "
            f"tell which that is in scene {unknown[0].scene}; evaluate again"
        )
    counted = np.ones(len(results), dtype=bool)
    for place, result in enumerate(results):
        if protocol.skip_consecutive and result.consecutive:
            counted[place] = False
        if protocol.lose_first and result.index == 0:
            counted[place] = False
    return counted


def summarize(
    results: Sequence[PairResult], protocol: Protocol, draws: int = DRAWS, seed: int = 0
) -> Summary:
    """Figures of pairs under a protocol, each with a 95 % bootstrap interval over pairs.

    Args:
        results: one a pair.
        protocol: the rules.
        draws: bootstrap draws; 0 leaves the intervals out.
        seed: of the draws.

    Raises:
        ValueError: no pairs, a pair given twice, or the rule of success needs an RMSE that no
            pair has.
    """
    check(results, protocol)
    names = sorted({result.scene for result in results})
    scenes = np.array([names.index(result.scene) for result in results])
    counted = counts_for_recall(results, protocol)
    success = succeeded(results, protocol.success)
    rre, rte, ratio = (column(results, name) for name in ("rre", "rte", "inlier_ratio"))
    matched = ~np.isnan(ratio)
    enough = matched & ~below(ratio, protocol.inlier_share, not protocol.share_inclusive)

    def mean(values: NDArray, which: NDArray[np.bool_], over: str = protocol.average) -> Figure:
        return mean_of(values.astype(np.float64), which, scenes, over, draws, seed)

    def median(values: NDArray, which: NDArray[np.bool_]) -> Figure:
        return median_of(values, which, scenes, protocol.average, draws, seed)

    rre_over, rte_over = averaged(results, protocol, success)
    per_scene = []
    for place, name in enumerate(names):
        here = scenes == place
        one = np.zeros_like(scenes)
        figures = [
            mean_of(values.astype(np.float64), which & here, one, "pairs", 0).value
            for values, which in ((success, counted), (enough, matched), (ratio, matched))
        ]
        per_scene.append((name, int((counted & here).sum()), figures[0], figures[1], figures[2]))
    needs_rmse = protocol.success.rmse is not None
    return Summary(
        protocol,
        mean(success, counted),
        mean(success, counted, "scenes"),
        mean(success, counted, "pairs"),
        mean(enough, matched),
        mean(ratio, matched),
        mean(rre, counted & rre_over),
        mean(rte, counted & rte_over),
        median(rre, counted & rre_over),
        median(rte, counted & rte_over),
        len(results),
        int(counted.sum()),
        int((counted & np.isnan(rre)).sum()),
        int((counted & np.isnan(column(results, "rmse")) & ~np.isnan(rre)).sum()) * needs_rmse,
        tuple(per_scene),
    )


def check(results: Sequence[PairResult], protocol: Protocol) -> None:
    """Refuse what would give a silent wrong figure."""
    if not results:
        raise ValueError("no pairs to summarize")
    keys = [(result.scene, result.target, result.source) for result in results]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"pair {twice} occurs twice; one result a pair is summarized")
    estimated = ~np.isnan(column(results, "rre"))
    judged = ~np.isnan(column(results, "rmse"))
    if protocol.success.rmse is not None and estimated.any() and not judged.any():
        raise ValueError(
            f"protocol {protocol.name} asks for RMSE, and no pair has one: give gt.info, or "
            "clouds to find the true correspondences in"
        )


def averaged(
    results: Sequence[PairResult], protocol: Protocol, success: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Over which pairs RRE and RTE are averaged."""
    rre, rte = column(results, "rre"), column(results, "rte")
    if protocol.errors_over == "accepted":
        return success, success
    if protocol.errors_over == "all":
        return ~np.isnan(rre), ~np.isnan(rte)
    rule = protocol.success
    return (
        ~np.isnan(rre) if rule.rre is None else below(rre, rule.rre, rule.inclusive),
        ~np.isnan(rte) if rule.rte is None else below(rte, rule.rte, rule.inclusive),
    )


def column(results: Sequence[PairResult], name: str) -> NDArray[np.float64]:
    """A field of every pair, [P]."""
    return np.array([getattr(result, name) for result in results], dtype=np.float64)


def below(values: NDArray[np.float64], limit: float, inclusive: bool) -> NDArray[np.bool_]:
    """Where values are below the limit; NaN never is."""
    return values <= limit if inclusive else values < limit
