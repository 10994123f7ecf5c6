"""Ranges of numbers, declared in the type of the parameter that they belong to.

`batch_size: Count` says what a configuration or a command line may pass; `pcnn.config`
reads it. A type checker and a caller in Python see `int`. Every number is finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from annotated_types import Ge, Gt, Interval, Predicate

#: Largest whole number: what torch's 32-bit indices reach.
MOST = 2**31 - 1

Count = Annotated[int, Interval(ge=1, le=MOST)]
Natural = Annotated[int, Interval(ge=0, le=MOST)]
Label = Annotated[int, Interval(ge=-(2**31), le=MOST)]
Seed = Annotated[int, Interval(ge=0, lt=2**32)]  # what numpy takes
Workers = Annotated[int, Interval(ge=0, le=1024)]

Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
PartialShare = Annotated[float, Interval(ge=0, lt=1)]
Length = Annotated[float, Interval(gt=0, le=1e6)]  # metres, or voxels
Distance = Annotated[float, Interval(ge=0, le=1e6)]
Degrees = Annotated[float, Interval(ge=0, le=180)]
Factor = Annotated[float, Interval(gt=0, le=1e3)]
Channels = Annotated[int, Interval(ge=1, le=65536)]
Width = Annotated[float, Interval(gt=0, le=16)]  # factor on a network's channels

Fragments = Annotated[int, Interval(ge=2, le=10**4)]
Spacing = Annotated[float, Interval(ge=0.002, le=0.5)]
Matches = Annotated[int, Interval(ge=3, le=MOST)]


def lowest_first(pair: Sequence[float]) -> bool:
    return pair[0] <= pair[1]


Lengths = Annotated[tuple[Length, Length], Predicate(lowest_first)]
Distances = Annotated[tuple[Distance, Distance], Predicate(lowest_first)]
Factors = Annotated[tuple[Factor, Factor], Predicate(lowest_first)]
Counts = Annotated[tuple[Count, Count], Predicate(lowest_first)]
