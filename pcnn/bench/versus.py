"""Two times held against each other: ours, and the best of the peers'."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcnn.bench.rows import Row

SLACK, SLACK_MS = 1.05, 0.002


@dataclass(frozen=True)
class Best:
    """The best time there is at a place.

    Args:
        name: engine and setting.
        gpu_ms: without launch gaps; time in kernels where the call waits for the device, ``None``
            where nobody profiled that.
        wall_ms: from start to end.
    """

    name: str
    gpu_ms: float | None
    wall_ms: float | None

    @classmethod
    def of(cls, name: str, runs: Sequence[Row]) -> Best:
        """The smallest times of several runs of one thing."""
        gpu = [row.gpu_ms for row in runs if row.gpu_ms is not None]
        if not gpu:
            gpu = [row.gpu_busy_ms for row in runs if row.gpu_busy_ms is not None]
        wall = [row.wall_ms for row in runs if row.wall_ms is not None]
        return cls(name, min(gpu, default=None), min(wall, default=None))

    @property
    def least(self) -> float:
        """The smaller of the two."""
        return min((t for t in (self.gpu_ms, self.wall_ms) if t is not None), default=math.inf)


@dataclass(frozen=True)
class Versus:
    """Ours and the best peer at one place.

    Args:
        ours: our best.
        peer: the best peer.
    """

    ours: Best
    peer: Best

    @property
    def time(self) -> float:
        """Our GPU time [ms]; from start to end where there is no other."""
        return self.ours.least if self.ours.gpu_ms is None else self.ours.gpu_ms

    @property
    def ratio(self) -> float:
        """The peer's time over ours."""
        return self.peer.least / self.time

    @property
    def wall_ratio(self) -> float | None:
        """The peer's time from start to end over ours."""
        if self.ours.wall_ms is None or self.peer.wall_ms is None:
            return None
        return self.peer.wall_ms / self.ours.wall_ms

    @property
    def no_slower(self) -> bool:
        """Whether our time is within 5 % or 2 us of the peer's."""
        return no_slower(self.time, self.peer.least)


def no_slower(ours: float, theirs: float) -> bool:
    """Whether a time is within 5 % or 2 us of another [ms]."""
    return ours <= max(theirs * SLACK, theirs + SLACK_MS)


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers; NaN of none."""
    if not values:
        return math.nan
    return math.exp(sum(map(math.log, values)) / len(values))
