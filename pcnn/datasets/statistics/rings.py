"""The rings of a spinning sensor, read from the order of the points in a file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_FEWEST, _MOST = 4, 256  # rings a sensor may have
_ORDERLY = 0.97  # share of steps that go on counter-clockwise, inside rings


@dataclass(frozen=True, eq=False)
class Rings:
    """What each ring of one scan holds.

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
