"""Two descriptors on the same pairs: differences of RR, FMR, IR, RRE and RTE, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from pcnn.metrics.registration.bootstrap import DRAWS, Figure, mean_of
from pcnn.metrics.registration.pair_result import PairResult
from pcnn.metrics.registration.pair_values import FIGURES, PairValues, pair_values, same_pairs
from pcnn.metrics.registration.protocols import Protocol
from pcnn.metrics.registration.table import with_interval


@dataclass(frozen=True)
class Comparison:
    """Differences of figures, first minus second, with 95 % intervals over pairs.

    Both figures of a draw come from the same pairs, so what makes a pair hard for both cancels.

    Args:
        rr: of registration recall.
        fmr: of feature-match recall.
        ir: of the inlier ratio, over pairs where both have matches.
        rre: of the rotation error [deg], over pairs that both register; less is better.
        rte: of the translation error [m], likewise.
        effects: of these five, in this order: the mean of the pairs' differences over their
            standard deviation (Cohen's d of paired samples); NaN where they do not vary.
    """

    rr: Figure
    fmr: Figure
    ir: Figure
    rre: Figure
    rte: Figure
    effects: tuple[float, ...]


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
        ValueError: as `same_pairs` has it.
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
        ValueError: as `same_pairs` has it.
    """
    one, other = same_pairs(first, second, protocol)
    scenes = scenes_of(one[0])
    return differences(pair_values(one, other, protocol), scenes, protocol.average, draws, seed)


def differences(
    values: Mapping[str, PairValues],
    scenes: NDArray[np.integer],
    average: str,
    draws: int = DRAWS,
    seed: int = 0,
) -> Comparison:
    """Mean differences of figures that are known pair by pair.

    Args:
        values: of `pair_values`.
        scenes: [P] scene of every pair, 0..S-1.
        average: over ``scenes`` or ``pairs``, as `mean_of` has it.
        draws: bootstrap draws.
        seed: of the draws.
    """
    figures = {
        name: mean_of(values[name].difference, values[name].compared, scenes, average, draws, seed)
        for name in FIGURES
    }
    effects = (_effect(values[name].difference[values[name].compared]) for name in FIGURES)
    return Comparison(**figures, effects=tuple(effects))


def scenes_of(results: Sequence[PairResult]) -> NDArray[np.integer]:
    """Number of every pair's scene, [P], 0..S-1."""
    return np.unique([result.scene for result in results], return_inverse=True)[1]


def _effect(gaps: NDArray[np.float64]) -> float:
    if len(gaps) < 2:
        return nan
    mean, spread = float(gaps.mean()), float(gaps.std(ddof=1))
    # equal differences vary by their rounding
    return mean / spread if spread > 1e-12 * abs(mean) else nan


def comparison_table(comparisons: Mapping[int | None, Comparison], title: str) -> Table:
    """One row a number of samples: differences with 95 % intervals over pairs.

    Args:
        comparisons: by number of samples; None when all points were used.
        title: what is compared.
    """
    table = Table(
        title=title,
        title_justify="left",
        caption="differences pair by pair, shares in points, RRE and RTE over pairs that both "
        "register; intervals are 95 % over pairs",
        caption_justify="left",
    )
    for heading in ("samples", "RR", "FMR", "IR", "RRE deg", "RTE m"):
        table.add_column(heading, justify="right")
    for samples, one in comparisons.items():
        gains = [with_interval(figure, 100, 1) for figure in (one.rr, one.fmr, one.ir)]
        gains += [with_interval(figure, 1, 3) for figure in (one.rre, one.rte)]
        table.add_row("all" if samples is None else str(samples), *gains)
    return table
