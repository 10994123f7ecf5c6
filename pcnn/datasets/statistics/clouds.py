"""The statistics of one cloud: histograms on fixed bins, and the rings of a spinning sensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.datasets.density import nearest_distances, neighbours_per_voxel

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


_FEWEST, _MOST = 4, 256  # rings a sensor may have
_ORDERLY = 0.97  # share of steps that go on counter-clockwise, inside rings


@dataclass(frozen=True, eq=False)
class Rings:
    """The rings of one scan.

    Args:
        points: [K] returns.
        elevation: [K] [deg] median, seen from the origin of the frame; NaN for an empty ring.
        range: [K] [m] median.
        slots: firings in one revolution, as the fullest parts of the rings show them.
    """

    points: NDArray[np.int64]
    elevation: NDArray[np.float64]
    range: NDArray[np.float64]
    slots: float

    @property
    def missing(self) -> float:
        """Share of the firings that gave no return."""
        return max(1.0 - float(self.points.sum()) / (len(self.points) * self.slots), 0.0)


def find_rings(points: NDArray[np.float32]) -> Rings | None:
    """Split a scan into rings where its azimuth starts again.

    KITTI's files hold ring after ring, each counter-clockwise from ahead.

    Args:
        points: [P, 3] in the order of the file.

    Returns:
        The rings; None where the order shows none.
    """
    if len(points) < 2 * _FEWEST:
        return None
    x, y, z = points.astype(np.float64).T
    azimuth = np.arctan2(y, x) % (2 * np.pi)
    step = np.diff(azimuth)
    start = step < -np.pi
    count = int(start.sum()) + 1
    inside = step[~start]
    if not _FEWEST <= count <= _MOST or (inside > -1e-3).mean() < _ORDERLY:
        return None
    ring = np.concatenate([[0], np.cumsum(start)])
    flat, distance = np.hypot(x, y), np.sqrt(x * x + y * y + z * z)
    elevation = np.degrees(np.arctan2(z, flat))
    ends = np.searchsorted(ring, np.arange(count + 1))
    spans = [slice(a, b) for a, b in pairwise(ends)]
    return Rings(
        np.diff(ends),
        np.array([np.median(elevation[span]) for span in spans]),
        np.array([np.median(distance[span]) for span in spans]),
        _slots(azimuth, spans),
    )


def _slots(azimuth: NDArray[np.float64], spans: list[slice]) -> float:
    # ten degrees at a time: the ninth decile of what rings hold there is a stretch without gaps
    parts = 36
    held = np.array(
        [np.histogram(azimuth[span], parts, (0.0, 2 * np.pi))[0] for span in spans], np.float64
    )
    return parts * float(np.quantile(held, 0.9))


VOXEL_SIZES = (0.05, 0.1)

# the same bins for every set, so that any two can be compared
RANGE_BINS = (0.0, 120.0, 480)
HEIGHT_BINS = (-20.0, 20.0, 800)
REMISSION_BINS = (-0.005, 1.005, 101)  # about hundredths, as KITTI has them
NEAREST_BINS = (0.0, 1.0, 1000)


@dataclass(frozen=True, eq=False)
class CloudStatistics:
    """Numbers of one cloud; lengths in metres.

    Args:
        points: how many.
        range: distances from the origin of the file's frame: the sensor, for a scan.
        height: z.
        remission: as the file has it; None where it holds none.
        nearest: distances from chosen points to the nearest other point.
        neighbours: mean neighbours of a voxel, by voxel size.
        rings: None where the order of the points shows none.
        classes: points by class; None where nothing is labelled.
    """

    points: int
    range: Histogram
    height: Histogram
    remission: Histogram | None
    nearest: Histogram
    neighbours: dict[float, float]
    rings: Rings | None
    classes: dict[str, int] | None


def cloud_statistics(
    points: NDArray[np.float32],
    remission: NDArray[np.float32] | None = None,
    classes: Sequence[str] | NDArray[np.str_] | None = None,
    voxel_sizes: Sequence[float] = VOXEL_SIZES,
) -> CloudStatistics:
    """Measure one cloud.

    Args:
        points: [P, 3] finite, in the order of the file [m]; P may be 0.
        remission: [P].
        classes: [P] name of the class of each point.
        voxel_sizes: edges of the voxels whose neighbours are counted [m].

    Returns:
        Its statistics.

    Raises:
        ValueError: shapes that do not fit, or voxels that cannot be numbered.
    """
    for name, values in (("remission", remission), ("classes", classes)):
        if values is not None and len(values) != len(points):
            raise ValueError(f"{len(points)} points, but {len(values)} {name}")
    labels = None
    if classes is not None:
        names, counts = np.unique(np.asarray(classes), return_counts=True)
        labels = {str(n): int(c) for n, c in zip(names, counts, strict=True)}
    return CloudStatistics(
        points=len(points),
        range=Histogram.of(np.linalg.norm(points.astype(np.float64), axis=1), *RANGE_BINS),
        height=Histogram.of(points[:, 2], *HEIGHT_BINS),
        remission=None if remission is None else Histogram.of(remission, *REMISSION_BINS),
        nearest=Histogram.of(nearest_distances(points), *NEAREST_BINS),
        neighbours={size: neighbours_per_voxel(points, size) for size in voxel_sizes},
        rings=find_rings(points),
        classes=labels,
    )
