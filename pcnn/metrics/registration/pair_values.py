"""Runs of two methods on the same pairs, and every figure of a pair as a mean over runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.metrics.registration.pair_result import PairResult
from pcnn.metrics.registration.protocols import Protocol
from pcnn.metrics.registration.summary import below, check, column, counts_for_recall, succeeded

#: Figures that are compared; of the errors less is better.
FIGURES = ("rr", "fmr", "ir", "rre", "rte")
ERRORS = ("rre", "rte")

Runs = tuple[tuple[PairResult, ...], ...]


@dataclass(frozen=True)
class PairValues:
    """One figure of every pair, of two methods.

    Args:
        first: [P] means over the runs of the first method; NaN where no run has the figure.
        second: [P] likewise.
        compared: [P] pairs that enter the comparison; both values are known there.
    """

    first: NDArray[np.float64]
    second: NDArray[np.float64]
    compared: NDArray[np.bool_]

    @property
    def difference(self) -> NDArray[np.float64]:
        """``first - second``, [P]."""
        return self.first - self.second


def same_pairs(
    first: Sequence[Sequence[PairResult]],
    second: Sequence[Sequence[PairResult]],
    protocol: Protocol,
) -> tuple[Runs, Runs]:
    """Bring the runs of two methods into one order of pairs.

    Args:
        first: runs, each with one result a pair, in any order.
        second: likewise; the numbers of runs may differ.
        protocol: says which errors results must have.

    Returns:
        The runs of both, pairs sorted by scene, target and source.

    Raises:
        ValueError: no run, runs of other pairs, a pair twice in a run, or a run without the RMSE
            that the protocol asks for.
    """
    if not first or not second:
        raise ValueError("a comparison needs at least one run of each method")
    one = {_key(pair) for pair in first[0]}
    for side, runs in (("first", first), ("second", second)):
        for number, run in enumerate(runs, 1):
            differing = one ^ {_key(pair) for pair in run}
            if differing:
                scene, target, source = min(differing)
                raise ValueError(
                    f"the results are not of the same pairs: {len(first[0])} and {len(run)} of "
                    f"them, {len(differing)} in one alone, such as {scene} ({target}, {source}), "
                    f"in run {number} of the {side} method"
                )
            check(run, protocol)
    ordered = [tuple(tuple(sorted(run, key=_key)) for run in runs) for runs in (first, second)]
    return ordered[0], ordered[1]


def pair_values(first: Runs, second: Runs, protocol: Protocol) -> dict[str, PairValues]:
    """Every figure of every pair, each method's mean over its runs.

    With S runs of a method: ``rr`` is the share of runs that register the pair, over pairs that
    count; ``fmr`` the share with enough right matches, over pairs where a method has matches;
    ``ir`` the mean over runs with matches, over pairs where both methods have some; ``rre`` [deg]
    and ``rte`` [m] the mean over runs that register the pair, over pairs that count and that both
    methods register, each in one run or more.

    Args:
        first: runs of the first method, pairs in the order of `same_pairs`.
        second: of the second.
        protocol: what counts and what succeeds.

    Returns:
        By name of `FIGURES`.
    """
    counted = counts_for_recall(first[0], protocol)
    sides = [_of_method(runs, protocol) for runs in (first, second)]
    matched = [~np.isnan(side["ir"]) for side in sides]
    compared = {
        "rr": counted,
        "fmr": matched[0] | matched[1],
        "ir": matched[0] & matched[1],
    }
    for name in ERRORS:
        compared[name] = counted & ~np.isnan(sides[0][name]) & ~np.isnan(sides[1][name])
    return {
        name: PairValues(sides[0][name], sides[1][name], which) for name, which in compared.items()
    }


def _of_method(runs: Runs, protocol: Protocol) -> dict[str, NDArray[np.float64]]:
    """Means over runs, [P] each."""
    success = np.array([succeeded(run, protocol.success) for run in runs])  # [S, P]
    ratio = np.array([column(run, "inlier_ratio") for run in runs])
    scarce = below(ratio, protocol.inlier_share, not protocol.share_inclusive)
    means = {
        "rr": success.mean(0),
        "fmr": (~np.isnan(ratio) & ~scarce).mean(0),
        "ir": mean_over_runs(ratio),
    }
    for name in ERRORS:
        errors = np.array([column(run, name) for run in runs])
        means[name] = mean_over_runs(np.where(success, errors, np.nan))
    return means


def mean_over_runs(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the first axis of what is known, [S, P] to [P]; NaN where no run knows it."""
    there = ~np.isnan(values)
    number = there.sum(0)
    means = np.where(there, values, 0.0).sum(0) / np.maximum(number, 1)
    return np.where(number > 0, means, np.nan)


def _key(result: PairResult) -> tuple[str, int, int]:
    return result.scene, result.target, result.source
