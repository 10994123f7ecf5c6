"""Two descriptors on the same pairs: differences of RR, FMR and IR, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from pcnn.metrics.registration.bootstrap import DRAWS, Figure, mean_of
from pcnn.metrics.registration.pair_result import PairResult
from pcnn.metrics.registration.protocols import Protocol
from pcnn.metrics.registration.summary import below, column, counts_for_recall, succeeded
from pcnn.metrics.registration.table import with_interval


@dataclass(frozen=True)
class Comparison:
    """Differences of figures, first minus second, with 95 % intervals over pairs.

    Both figures of a draw come from the same pairs, so what makes a pair hard for both cancels.

    Args:
        rr: of registration recall.
        fmr: of feature-match recall.
        ir: of the inlier ratio, over pairs where both have matches.
        effects: of these three: the mean of the pairs' differences over their standard deviation
            (Cohen's d of paired samples); NaN where they do not vary.
    """

    rr: Figure
    fmr: Figure
    ir: Figure
    effects: tuple[float, float, float]


def compare(
    first: Sequence[PairResult],
    second: Sequence[PairResult],
    protocol: Protocol,
    draws: int = DRAWS,
    seed: int = 0,
) -> Comparison:
    """Compare two sets of results of the same pairs.

    Args:
        first: one a pair.
        second: one a pair, in any order.
        protocol: what counts, what succeeds, and over what is averaged.
        draws: bootstrap draws; 0 leaves the intervals out.
        seed: of the draws.

    Raises:
        ValueError: the pairs are not the same.
    """
    return compare_runs([first], [second], protocol, draws, seed)


def compare_runs(
    first: Sequence[Sequence[PairResult]],
    second: Sequence[Sequence[PairResult]],
    protocol: Protocol,
    draws: int = DRAWS,
    seed: int = 0,
) -> Comparison:
    """Compare several runs of one method with several of another, all of the same pairs.

    Every pair counts with its mean over the runs of a method (training seeds, RANSAC seeds), then
    pairs are drawn: runs do not make the number of pairs any larger.

    Args:
        first: runs, each with one result a pair.
        second: likewise; the numbers of runs may differ.
        protocol: as in `compare`, with the following two.
        draws: ...
        seed: ...

    Raises:
        ValueError: no run, or runs of other pairs.
    """
    if not first or not second:
        raise ValueError("a comparison needs a run on either side")
    sides = [[sorted(run, key=_key) for run in runs] for runs in (first, second)]
    one = sides[0][0]
    for run in (run for runs in sides for run in runs):
        if [_key(pair) for pair in run] != [_key(pair) for pair in one]:
            missing = {_key(pair) for pair in one} ^ {_key(pair) for pair in run}
            raise ValueError(
                f"the results are not of the same pairs: {len(one)} and {len(run)} of them, "
                f"{len(missing)} in one alone"
            )
    _, scenes = np.unique([pair.scene for pair in one], return_inverse=True)
    counted = counts_for_recall(one, protocol)
    ratios = [np.array([column(run, "inlier_ratio") for run in runs]) for runs in sides]  # [S, P]
    known = [~np.isnan(ratio) for ratio in ratios]
    matched = [there.any(0) for there in known]
    share, inclusive = protocol.inlier_share, not protocol.share_inclusive
    enough = [
        (there & ~below(ratio, share, inclusive)).mean(0)
        for there, ratio in zip(known, ratios, strict=True)
    ]
    ratio = [
        np.where(there, value, 0).sum(0) / np.maximum(there.sum(0), 1)
        for there, value in zip(known, ratios, strict=True)
    ]
    success = [
        np.array([succeeded(run, protocol.success) for run in runs]).mean(0) for runs in sides
    ]
    gaps = [
        (success[0] - success[1], counted),
        (enough[0] - enough[1], matched[0] | matched[1]),
        (ratio[0] - ratio[1], matched[0] & matched[1]),
    ]
    rr, fmr, ir = (
        mean_of(gap, which, scenes, protocol.average, draws, seed) for gap, which in gaps
    )
    effects = tuple(_effect(gap[which]) for gap, which in gaps)
    return Comparison(rr, fmr, ir, (effects[0], effects[1], effects[2]))


def _effect(gaps: NDArray[np.float64]) -> float:
    spread = float(gaps.std(ddof=1)) if len(gaps) > 1 else 0.0
    return float(gaps.mean()) / spread if spread > 0 else nan


def _key(result: PairResult) -> tuple[str, int, int]:
    return result.scene, result.target, result.source


def comparison_table(comparisons: Mapping[int | None, Comparison], title: str) -> Table:
    """One row a number of samples: differences in points, with 95 % intervals over pairs.

    Args:
        comparisons: by number of samples; None when all points were used.
        title: what is compared.
    """
    table = Table(
        title=title,
        title_justify="left",
        caption="differences in points, pair by pair; intervals are 95 % over pairs",
        caption_justify="left",
    )
    for heading in ("samples", "RR", "FMR", "IR"):
        table.add_column(heading, justify="right")
    for samples, one in comparisons.items():
        gains = [with_interval(figure, 100, 1) for figure in (one.rr, one.fmr, one.ir)]
        table.add_row("all" if samples is None else str(samples), *gains)
    return table
