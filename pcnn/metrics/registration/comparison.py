"""Two descriptors on the same pairs: differences of RR, FMR and IR, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
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
    """

    rr: Figure
    fmr: Figure
    ir: Figure


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
    first = sorted(first, key=_key)
    second = sorted(second, key=_key)
    if [_key(one) for one in first] != [_key(one) for one in second]:
        missing = {_key(one) for one in first} ^ {_key(one) for one in second}
        raise ValueError(
            f"the two results are not of the same pairs: {len(first)} and {len(second)} of them, "
            f"{len(missing)} in one alone"
        )
    _, scenes = np.unique([one.scene for one in first], return_inverse=True)
    counted = counts_for_recall(first, protocol)
    ratios = [column(results, "inlier_ratio") for results in (first, second)]
    matched = [~np.isnan(ratio) for ratio in ratios]
    enough = [
        there & ~below(ratio, protocol.inlier_share, not protocol.share_inclusive)
        for there, ratio in zip(matched, ratios, strict=True)
    ]
    success = [succeeded(results, protocol.success) for results in (first, second)]

    def difference(values: Sequence[np.ndarray], which: np.ndarray) -> Figure:
        gap = values[0].astype(np.float64) - values[1].astype(np.float64)
        return mean_of(gap, which, scenes, protocol.average, draws, seed)

    return Comparison(
        difference(success, counted),
        difference(enough, matched[0] | matched[1]),
        difference(ratios, matched[0] & matched[1]),
    )


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
