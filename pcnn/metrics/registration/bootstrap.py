"""Means over scenes or pairs, with bootstrap intervals over pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """A mean and what it stands on."""

    value: float  # the mean; NaN over nothing
    low: float  # lower end of its 95 % interval
    high: float  # upper end
    pairs: int  # pairs it is a mean of


def mean_of(
    values: NDArray[np.floating],  # [P], of every pair
    counted: NDArray[np.bool_],  # [P] which of them enter the mean
    scenes: NDArray[np.integer],  # [P] scene of every pair, 0..S-1
    over: str,
    draws: int = DRAWS,
    seed: int = 0,
    centre: Callable[[Floats], Floats] | None = None,
) -> Figure:
    """Mean of the counted values, or another centre of them, with a 95 % percentile interval.

    Over ``scenes`` it is the mean of the centres of scenes that have a counted pair. Pairs are
    drawn with replacement within their scenes, so that every draw holds every scene.
    """
    if over not in ("scenes", "pairs"):
        raise ValueError(f"a figure is over scenes or pairs, got {over!r}")
    centre = centre or _mean
    values = np.where(counted, values, nan)
    n = int((~np.isnan(values)).sum())
    if n == 0:
        return Figure(nan, nan, nan, 0)
    rows = [np.flatnonzero(scenes == scene) for scene in np.unique(scenes)]

    def joined(parts: Sequence[NDArray[Any]]) -> Floats:
        """Of the scenes' values [D, P_s] in D draws, [D]."""
        if over == "pairs":
            return centre(np.concatenate(parts, axis=1))
        return _mean(np.stack([centre(part) for part in parts], axis=1))

    value = float(joined([values[None, row] for row in rows])[0])
    if draws == 0:
        return Figure(value, nan, nan, n)
    generator = np.random.default_rng(seed)
    drawn = [values[row[generator.integers(0, len(row), (draws, len(row)))]] for row in rows]
    low, high = np.nanquantile(joined(drawn), [0.025, 0.975])
    return Figure(value, float(low), float(high), n)


def _mean(values: Floats) -> Floats:
    """Mean [D] of what is known in every row [D, P]; NaN where nothing is."""
    known = ~np.isnan(values)
    number = known.sum(1)
    return np.where(number > 0, np.where(known, values, 0.0).sum(1) / np.maximum(number, 1), nan)


def deviation(values: Floats) -> Floats:
    """Standard deviation [D], ``sqrt(sum (x - mean)² / P)``, of what is known in [D, P]."""
    return np.sqrt(_mean((values - _mean(values)[:, None]) ** 2))


def median(values: Floats) -> Floats:
    """Median [D] of what is known in every row [D, P]; NaN where nothing is."""
    ranked = np.sort(values, axis=1)  # NaN comes last
    number = (~np.isnan(values)).sum(1)
    ends = np.stack([(number - 1) // 2, number // 2], axis=1).clip(0, values.shape[1] - 1)
    middle = np.take_along_axis(ranked, ends, axis=1).mean(1)
    return np.where(number > 0, middle, nan)
