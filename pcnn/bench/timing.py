"""What repeats of a call took, summarised."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Milliseconds of the repeats, summarised.

    Args:
        median: the middle one.
        fastest: the smallest.
        p90: nine in ten repeats took at most this.
        repeats: how many there were.
    """

    median: float
    fastest: float
    p90: float
    repeats: int

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> Timing:
        """Summarise repeats.

        Raises:
            ValueError: no repeat at all.
        """
        if not milliseconds:
            raise ValueError("no repeats to summarise")
        ordered = sorted(milliseconds)
        # nearest rank: the smallest repeat that at least 90 % do not exceed
        rank = -(-len(ordered) * 9 // 10) - 1
        return cls(statistics.median(ordered), ordered[0], ordered[rank], len(ordered))
