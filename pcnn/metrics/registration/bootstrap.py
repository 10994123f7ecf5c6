"""Means over scenes or pairs, with bootstrap intervals over pairs."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000


@dataclass(frozen=True)
class Figure:
    """A mean and what it stands on.

    Args:
        value: the mean; NaN over nothing.
        low: lower end of its 95 % interval.
        high: upper end.
        pairs: pairs it is a mean of.
    """

    value: float
    low: float
    high: float
    pairs: int


def mean_of(
    values: NDArray[np.floating],
    counted: NDArray[np.bool_],
    scenes: NDArray[np.integer],
    over: str,
    draws: int = DRAWS,
    seed: int = 0,
) -> Figure:
    """Mean of the counted values, with a 95 % percentile interval.

    Pairs are drawn with replacement within their scenes, so that every draw holds every scene and
    a mean of scene means stays what it is.

    Args:
        values: [P], of every pair.
        counted: [P] which of them enter the mean.
        scenes: [P] scene of every pair, 0..S-1.
        over: ``scenes``: mean of the means of scenes that have a counted pair; ``pairs``: plain.
        draws: bootstrap draws; 0 leaves the interval NaN.
        seed: of the draws.

    Raises:
        ValueError: another `over`.
    """
    if over not in ("scenes", "pairs"):
        raise ValueError(f"a mean is over scenes or pairs, got {over!r}")
    weight = counted.astype(np.float64)
    sums_of = np.where(counted, values, 0.0)
    n = int(counted.sum())
    if n == 0:
        return Figure(nan, nan, nan, 0)
    generator = np.random.default_rng(seed)
    rows = [np.flatnonzero(scenes == scene) for scene in np.unique(scenes)]
    sums = np.array([[sums_of[row].sum(), weight[row].sum()] for row in rows])  # [S, 2]
    value = float(_mean(sums[:, 0], sums[:, 1], over))
    if draws == 0:
        return Figure(value, nan, nan, n)
    drawn = np.empty((2, len(rows), draws))
    for place, row in enumerate(rows):
        chosen = row[generator.integers(0, len(row), (draws, len(row)))]  # [draws, pairs]
        drawn[0, place] = sums_of[chosen].sum(1)
        drawn[1, place] = weight[chosen].sum(1)
    means = _mean(drawn[0], drawn[1], over)  # [draws]
    low, high = np.nanquantile(means, [0.025, 0.975])
    return Figure(value, float(low), float(high), n)


def _mean(sums: NDArray[np.float64], weights: NDArray[np.float64], over: str) -> NDArray:
    """Mean over the first axis, scenes; a scene without a counted pair has no mean."""
    if over == "pairs":
        total = weights.sum(0)
        return np.where(total > 0, sums.sum(0) / np.maximum(total, 1), nan)
    there = weights > 0
    means = np.where(there, sums / np.maximum(weights, 1), 0.0)
    number = there.sum(0)
    return np.where(number > 0, means.sum(0) / np.maximum(number, 1), nan)


def paired_difference(
    first: NDArray[np.floating], second: NDArray[np.floating], draws: int = DRAWS, seed: int = 0
) -> Figure:
    """Mean of ``first - second`` over the same pairs, with a 95 % bootstrap interval.

    Args:
        first: [P] or [P, seeds].
        second: like `first`; seeds are averaged before pairs are drawn.
        draws: bootstrap draws.
        seed: of the draws.

    Raises:
        ValueError: the numbers of pairs differ, or there is none.
    """
    a, b = (values.reshape(len(values), -1).mean(1) for values in (first, second))
    if len(a) != len(b) or len(a) == 0:
        raise ValueError(f"paired figures need the same pairs, got {len(a)} and {len(b)}")
    difference = a - b
    generator = np.random.default_rng(seed)
    means = difference[generator.integers(0, len(a), (draws, len(a)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Figure(float(difference.mean()), float(low), float(high), len(a))
