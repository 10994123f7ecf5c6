"""Two methods on the same pairs, each by one run or several: figures, differences, recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from pcnn.metrics.registration.bootstrap import DRAWS, Figure, mean_of
from pcnn.metrics.registration.pair_results import JudgedPairs, PairResult
from pcnn.metrics.registration.protocols import Protocol
from pcnn.metrics.registration.summary import recall_curve, summarize

#: Figures that are compared; of the errors less is better.
FIGURES = ("rr", "fmr", "ir", "rre", "rte")
ERRORS = ("rre", "rte")
#: Points of a curve of recall, from zero to `REACH` times the protocol's threshold.
LIMITS, REACH = 61, 2.5

Floats = NDArray[np.float64]
Runs = Sequence[Sequence[PairResult]]


@dataclass(frozen=True, eq=False)
class Compared:
    """One figure of two methods on P pairs; each pair counts with its mean over a method's runs."""

    pairs: Floats  # [2, P] of both methods; NaN where no run has the figure
    which: NDArray[np.bool_]  # [P] pairs that are compared: both methods have the figure
    difference: Figure  # mean of first minus second over these pairs, averaged as the protocol does
    effect: float  # Cohen's d of paired samples
    means: tuple[float, ...]  # of both methods over the pairs compared
    medians: tuple[float, ...]  # of both methods over the pairs compared
    runs: tuple[tuple[float, ...], ...]  # of both methods

    @property
    def gaps(self) -> Floats:
        """First minus second, [P]."""
        gaps: Floats = self.pairs[0] - self.pairs[1]
        return gaps


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two methods on the same pairs, at one number of samples."""

    protocol: Protocol  # their rules
    names: tuple[str, str]  # of both methods; the second is subtracted
    figures: Mapping[str, Compared]  # by name of FIGURES; shares 0..1, RRE [deg], RTE [m]
    error: str  # rmse, or rte where the protocol has no RMSE: recall is drawn over it
    limits: Floats  # [L] thresholds of that error [m]
    recall: tuple[Floats, ...]  # of both methods, [S, L] of every run


def compare(
    first: Runs,
    second: Runs,
    protocol: Protocol,
    names: tuple[str, str] = ("A", "B"),
    draws: int = DRAWS,
    seed: int = 0,
) -> Comparison:
    """Compare the runs of two methods (training seeds, RANSAC seeds) pair by pair.

    ``rr`` is the share of runs that register a pair, over the pairs that count. ``fmr`` is the
    share with enough right matches, over pairs where a method has matches. ``ir`` is the mean over
    runs with matches, over pairs where both methods have some. ``rre`` and ``rte`` are the mean
    over the runs that register the pair, over pairs that count and that each method registers in
    one run or more. A method that registers harder pairs too has larger errors of its own.

    Both figures of a bootstrap draw come from the same pairs, so that the difficulty of a pair
    cancels. Pairs are drawn, not runs: more runs do not make the number of pairs larger.
    """
    if names[0] == names[1]:
        raise ValueError(f"both methods are named {names[0]!r}: a table could not tell them apart")
    ordered = _ordered(first, second)
    judged = [[JudgedPairs(run, protocol) for run in runs] for runs in ordered]
    for runs in judged:
        for run in runs:
            run.check()
    scenes, counted = judged[0][0].scenes, judged[0][0].counted
    sides = [_means(runs) for runs in judged]
    summaries = [[summarize(run, protocol, draws=0) for run in runs] for runs in ordered]

    def compared(name: str) -> Compared:
        pairs = np.stack([side[name] for side in sides])
        known: NDArray[np.bool_] = ~np.isnan(pairs[0] - pairs[1])
        if name == "rr":
            known = counted
        elif name == "fmr":
            known = ~(np.isnan(sides[0]["ir"]) & np.isnan(sides[1]["ir"]))
        elif name in ERRORS:
            known = known & counted

        def mean(values: Floats, draws: int) -> Figure:
            return mean_of(values, known, scenes, protocol.average, draws, seed)

        return Compared(
            pairs,
            known,
            mean(pairs[0] - pairs[1], draws),
            _effect((pairs[0] - pairs[1])[known]),
            tuple(mean(side, 0).value for side in pairs),
            tuple(float(np.median(side[known])) if known.any() else nan for side in pairs),
            tuple(tuple(getattr(one, name).value for one in runs) for runs in summaries),
        )

    error = "rte" if protocol.success.rmse is None else "rmse"
    limits = np.linspace(0, REACH * protocol.success.thresholds[error], LIMITS)
    return Comparison(
        protocol,
        names,
        {name: compared(name) for name in FIGURES},
        error,
        limits,
        tuple(
            np.array([recall_curve(run, protocol, error, limits) for run in runs])
            for runs in ordered
        ),
    )


def _ordered(first: Runs, second: Runs) -> tuple[list[list[PairResult]], ...]:
    """The runs of both methods, pairs sorted by scene, target and source."""
    if not first or not second:
        raise ValueError("a comparison needs at least one run of each method")
    one = {result.pair for result in first[0]}
    for side, runs in (("first", first), ("second", second)):
        for number, run in enumerate(runs, 1):
            differing = one ^ {result.pair for result in run}
            if differing:
                scene, target, source = min(differing)
                raise ValueError(
                    f"the results are not of the same pairs: {len(first[0])} and {len(run)} of "
                    f"them, {len(differing)} in one alone, such as {scene} ({target}, {source}), "
                    f"in run {number} of the {side} method"
                )
    return tuple(
        [sorted(run, key=lambda result: result.pair) for run in runs] for runs in (first, second)
    )


def _means(runs: Sequence[JudgedPairs]) -> dict[str, Floats]:
    """Figures of every pair, means over the runs of a method, [P] each."""
    registered = np.array([run.registered for run in runs])  # [S, P]
    found: dict[str, Floats] = {
        "rr": registered.mean(0),
        "fmr": np.array([run.enough for run in runs]).mean(0),
        "ir": mean_of_known(np.array([run.inlier_ratio for run in runs])),
    }
    for name in ERRORS:
        errors = np.array([getattr(run, name) for run in runs])
        found[name] = mean_of_known(np.where(registered, errors, nan))
    return found


def mean_of_known(values: Floats) -> Floats:
    """Mean [P] over the runs of [S, P] that have a value; NaN where none has."""
    known = ~np.isnan(values)
    number = known.sum(0)
    means = np.where(known, values, 0.0).sum(0) / np.maximum(number, 1)
    return np.where(number > 0, means, nan)


def _effect(gaps: Floats) -> float:
    if len(gaps) < 2:
        return nan
    mean, spread = float(gaps.mean()), float(gaps.std(ddof=1))
    # equal differences vary by their rounding
    return mean / spread if spread > 1e-12 * abs(mean) else nan
