"""Histograms on fixed bins, and how far one is from another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts in equal bins; values beyond the ends are counted in the outermost bins.

    Args:
        low: lower end of the first bin.
        high: upper end of the last bin.
        counts: [B] values in each bin.
        under: how many of those in the first bin lie below `low`.
        over: how many of those in the last bin lie above `high`.
    """

    low: float
    high: float
    counts: Floats
    under: float = 0.0
    over: float = 0.0

    @staticmethod
    def of(values: NDArray[Any], low: float, high: float, bins: int) -> Histogram:
        """Count finite values [N] in `bins` equal bins between `low` and `high`."""
        values = np.asarray(values, np.float64)
        counts, _ = np.histogram(np.clip(values, low, high), bins, (low, high))
        beyond = float((values < low).sum()), float((values > high).sum())
        return Histogram(low, high, counts.astype(np.float64), *beyond)

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram of the values of both.

        Raises:
            ValueError: other bins.
        """
        self._check(other)
        beyond = self.under + other.under, self.over + other.over
        return Histogram(self.low, self.high, self.counts + other.counts, *beyond)

    @property
    def width(self) -> float:
        """Width of a bin."""
        return (self.high - self.low) / len(self.counts)

    @property
    def middles(self) -> Floats:
        """[B] middles of the bins."""
        return np.asarray(self.low + (np.arange(len(self.counts)) + 0.5) * self.width)

    @property
    def shares(self) -> Floats:
        """[B] counts over their sum; all 0 without values."""
        return np.asarray(self.counts / max(float(self.counts.sum()), 1.0))

    def quantile(self, share: float) -> float:
        """Return the value below which `share` of the values lie, linear inside a bin.

        NaN where there are no values; minus or plus infinity where the value lies below `low` or
        above `high`, where nothing is known of it.
        """
        below = np.concatenate([[0.0], np.cumsum(self.counts)])
        total = below[-1]
        if total == 0:
            return float("nan")
        below[0], below[-1] = self.under, total - self.over
        if share * total < below[0] or share * total > below[-1]:
            return float("-inf") if share * total < below[0] else float("inf")
        edges = np.linspace(self.low, self.high, len(below))
        # empty bins make steps; the first edge that reaches the share counts
        at = int(np.clip(np.searchsorted(below, share * total), 1, len(self.counts)))
        inside = (share * total - below[at - 1]) / max(below[at] - below[at - 1], 1e-300)
        return float(edges[at - 1] + np.clip(inside, 0.0, 1.0) * self.width)

    def coarser(self, factor: int) -> Histogram:
        """Join every `factor` bins, which must divide their number."""
        joined = self.counts.reshape(-1, factor).sum(1)
        return Histogram(self.low, self.high, joined, self.under, self.over)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return {**vars(self), "counts": self.counts.tolist()}

    @staticmethod
    def from_json(content: dict[str, Any]) -> Histogram:
        """Read what `to_json` gave."""
        counts = np.asarray(content["counts"], np.float64)
        low, high = float(content["low"]), float(content["high"])
        if counts.ndim != 1 or not len(counts) or (counts < 0).any() or not low < high:
            raise ValueError("a histogram needs low < high and counts of at least 0")
        under, over = (float(content.get(name, 0.0)) for name in ("under", "over"))
        return Histogram(low, high, counts, under, over)

    def _check(self, other: Histogram) -> None:
        mine = (self.low, self.high, len(self.counts))
        theirs = (other.low, other.high, len(other.counts))
        if mine != theirs:
            raise ValueError(f"histograms have other bins: {mine} and {theirs}")


def earth_movers_distance(a: Histogram, b: Histogram) -> float:
    """Return the mean distance by which the values of one must move to become the other.

    sum over bins |F_a - F_b| * width, F the shares summed from below; in the unit of the bins.
    Values beyond the ends count at the ends: with any (`under`, `over`) it is a lower bound.

    Raises:
        ValueError: other bins, or a histogram without values.
    """
    a._check(b)
    if min(a.counts.sum(), b.counts.sum()) == 0:
        raise ValueError("the distance to a histogram without values is not defined")
    return float(np.abs(np.cumsum(a.shares - b.shares)).sum() * a.width)
