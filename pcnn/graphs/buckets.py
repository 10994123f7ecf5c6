"""Sizes that CUDA graphs are captured at: a row of edges, each a fixed ratio above the last."""

from __future__ import annotations

import functools
from dataclasses import dataclass

#: Sizes are whole tiles of rows.
UNIT = 128

#: How many times the sites of the cloud that asks for a bucket it is made for.
HEADROOM = 1.1


@dataclass(frozen=True)
class Edges:
    """Edges ``e_k = smallest ratio^k``, rounded up to multiples of `UNIT`.

    A size belongs to the smallest edge that is not below it, so a bucket has at most ``ratio``
    times the rows of what lies in it, and a few more for the rounding.
    """

    smallest: int = 1024  # the first edge
    ratio: float = 1.25  # between neighbours, above 1 and at most 1.3

    def __post_init__(self) -> None:
        if self.smallest < 1:
            raise ValueError(f"the smallest bucket must hold a point, got {self.smallest}")
        if not 1 < self.ratio <= 1.3:
            raise ValueError(f"buckets must be 1 to 1.3 apart, got ratio={self.ratio}")

    def above(self, size: int) -> int:
        """The edge of a size."""
        return _edge_above(self.smallest, self.ratio, size)


@functools.lru_cache(maxsize=4096)
def _edge_above(smallest: int, ratio: float, size: int) -> int:
    number, edge = 0, _whole(smallest)
    while edge < size:
        number += 1
        edge = max(edge + UNIT, _whole(smallest * ratio**number))
    return edge


def _whole(size: float) -> int:
    return -int(-size // UNIT) * UNIT
