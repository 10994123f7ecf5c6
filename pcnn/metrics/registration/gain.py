"""All that a table of two methods shows: each by itself, and the one against the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from pcnn.metrics.registration.bootstrap import DRAWS, mean_of
from pcnn.metrics.registration.comparison import Comparison, differences, scenes_of
from pcnn.metrics.registration.curves import recall_curve
from pcnn.metrics.registration.pair_result import PairResult
from pcnn.metrics.registration.pair_values import (
    ERRORS,
    FIGURES,
    PairValues,
    Runs,
    pair_values,
    same_pairs,
)
from pcnn.metrics.registration.protocols import Protocol
from pcnn.metrics.registration.summary import summarize

#: Points of a curve of recall, from zero to `REACH` times the protocol's threshold.
LIMITS, REACH = 61, 2.5


@dataclass(frozen=True)
class Spread:
    """One figure of a method, of every run by itself.

    Args:
        values: of the runs; NaN where a run has none (no pair registered: no RRE).
    """

    values: tuple[float, ...]

    @property
    def known(self) -> list[float]:
        """Values that exist."""
        return [value for value in self.values if not isnan(value)]

    @property
    def mean(self) -> float:
        """Over the runs that have the figure; NaN without any."""
        return float(np.mean(self.known)) if self.known else nan

    @property
    def deviation(self) -> float:
        """Standard deviation over them, ``sqrt(sum (x - mean)² / (S - 1))``; NaN below two."""
        return float(np.std(self.known, ddof=1)) if len(self.known) > 1 else nan


@dataclass(frozen=True)
class Centre:
    """An error of one method over the pairs that both methods register.

    Args:
        mean: averaged as the protocol does, over scenes or pairs; NaN over nothing.
        median: over these pairs.
    """

    mean: float
    median: float


@dataclass(frozen=True)
class Method:
    """One of the two.

    Args:
        name: as tables have it.
        runs: RR, FMR, IR (0..1), RRE [deg] and RTE [m] of its runs, as the protocol has them for
            one evaluation, by name of `FIGURES`.
        common: ``rre`` [deg] and ``rte`` [m] over the pairs that both methods register.
        recall: [S, L] of every run, at the limits of `Gain`.
    """

    name: str
    runs: Mapping[str, Spread]
    common: Mapping[str, Centre]
    recall: NDArray[np.float64]


@dataclass(frozen=True)
class Gain:
    """Two methods on the same P pairs.

    Args:
        protocol: their rules.
        first: the one.
        second: the other, which is subtracted.
        comparison: differences, intervals, effects.
        values: what was compared, pair by pair, by name of `FIGURES`.
        error: ``rmse`` or ``rte``, over whose threshold recall is drawn [m].
        limits: [L] such thresholds.
    """

    protocol: Protocol
    first: Method
    second: Method
    comparison: Comparison
    values: Mapping[str, PairValues]
    error: str
    limits: NDArray[np.float64]


def gain_of(
    first: Sequence[Sequence[PairResult]],
    second: Sequence[Sequence[PairResult]],
    protocol: Protocol,
    names: tuple[str, str] = ("A", "B"),
    draws: int = DRAWS,
    seed: int = 0,
) -> Gain:
    """Compare runs of two methods and describe each.

    A method's own figures are means over its runs of what an evaluation reports, with the standard
    deviation over them. Differences are over pairs, each with its mean over a method's runs. For
    RR, and without pairs that lack matches for FMR and IR too, the difference is that of the means;
    RRE and RTE are compared over pairs that both methods register, since a method that registers
    harder pairs too has larger errors of its own.

    Args:
        first: runs, each with one result a pair.
        second: likewise; the numbers of runs may differ.
        protocol: what counts, what succeeds, and over what is averaged.
        names: of both.
        draws: bootstrap draws; 0 leaves the intervals out.
        seed: of the draws.

    Raises:
        ValueError: as `same_pairs` has it, or both names are the same.
    """
    if names[0] == names[1]:
        raise ValueError(f"both methods are named {names[0]!r}: a table could not tell them apart")
    sides = same_pairs(first, second, protocol)
    scenes = scenes_of(sides[0][0])
    values = pair_values(*sides, protocol)
    error = "rte" if protocol.success.rmse is None else "rmse"
    limits = np.linspace(0, REACH * getattr(protocol.success, error), LIMITS)
    methods = []
    for name, runs, side in zip(names, sides, ("first", "second"), strict=True):
        common = {}
        for figure in ERRORS:
            of_pairs, which = getattr(values[figure], side), values[figure].compared
            mean = mean_of(of_pairs, which, scenes, protocol.average, draws=0).value
            common[figure] = Centre(mean, float(np.median(of_pairs[which])) if which.any() else nan)
        recall = np.array([recall_curve(run, protocol, error, limits) for run in runs])
        methods.append(Method(name, _spreads(runs, protocol), common, recall))
    comparison = differences(values, scenes, protocol.average, draws, seed)
    return Gain(protocol, methods[0], methods[1], comparison, values, error, limits)


def _spreads(runs: Runs, protocol: Protocol) -> dict[str, Spread]:
    of_runs = [summarize(run, protocol, draws=0) for run in runs]
    return {
        name: Spread(tuple(getattr(summary, name).value for summary in of_runs)) for name in FIGURES
    }
