"""Which neighbours of a native point a kernel sees, and in which of its cells."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Treatment of a neighbour within reach whose offset leaves the kernel's box.
OUTSIDE = ("clamp", "drop")

METRICS = ("auto", "ball", "box")


@dataclass(frozen=True)
class Neighbourhood:
    """The rule by which kernels relate native points (PointCNN++ 3.2); part of their geometry.

    It changes values, so it belongs to the points and not to an engine: whatever computes a
    network, its numbers are the same.
    """

    #: what becomes of neighbours within reach and outside the kernel's box: ``clamp`` takes them
    #: into its nearest cell, ``drop`` leaves them out
    outside: str = "clamp"
    volume: float = 1.0  # volume of the field over that of the kernel's box, s
    #: edge of a kernel cell, in cells of the input's level: 0.6 puts a kernel of 5 into the field
    #: of one of 3
    cell: float = 1.0
    #: ``ball``, ``box``, or ``auto``: a cubic kernel over cubic cells reaches as far as the ball
    #: with the volume of its box, any other one as far as its box
    metric: str = "auto"
    cover: bool = False  # whether a strided kernel reaches at least every point of its coarse cell
    memory: float | None = None  # most memory that maps may take [GB]

    def __post_init__(self) -> None:
        check_outside(self.outside)
        if self.metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {self.metric!r}")
        if not (0 < self.volume < math.inf and 0 < self.cell < math.inf):
            raise ValueError(
                f"volume and cell must be positive and finite, got {self.volume} and {self.cell}"
            )
        if self.memory is not None and not 0 < self.memory < math.inf:
            raise ValueError(f"memory must be positive [GB] or none, got {self.memory}")
        if self.cover and self.outside == "drop":
            raise ValueError("cover=True reaches points outside the box, which outside=drop drops")


def check_outside(outside: str) -> None:
    """Refuse a rule that does not exist."""
    if outside not in OUTSIDE:
        raise ValueError(f"outside must be one of {', '.join(OUTSIDE)}, got {outside!r}")


#: The rule of PointCNN++'s code.
USUAL = Neighbourhood()
