"""Settings of gather-scatter dataflows that were measured to be the quickest for a layer.

Sources: TorchSparse (MLSys 2022) Algorithm 5 for `search_adaptive`; Minuet (EuroSys 2024)
Algorithm 2 for `search_tile`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pcnn.dataflows.grouping import Adaptive, Group, Grouping, Sorted

#: Tolerances and ``mm`` thresholds that `search_adaptive` tries: fewer than 1000 settings.
EPSILONS = tuple(step / 20 for step in range(21))
THRESHOLDS = (0, *(1 << power for power in range(10, 21)), math.inf)

#: Padding thresholds that `search_sorted` tries: none, 50 values in 0..2, everything in one group.
PADDINGS = (-1.0, *(2 * step / 49 for step in range(50)), math.inf)

#: Measures the products of one sample, in any unit of time: ``cost(sizes, groups)``.
Cost = Callable[[Sequence[int], tuple[Group, ...]], float]

Strategy = TypeVar("Strategy", bound=Grouping)


def search_adaptive(
    samples: Sequence[Sequence[int]],
    cost: Cost,
    *,
    skip: int = -1,
    epsilons: Sequence[float] = EPSILONS,
    thresholds: Sequence[float] = THRESHOLDS,
) -> Adaptive:
    """Find the tolerance and the threshold of the least time over sampled inputs of one layer.

    TorchSparse Algorithm 5, an exhaustive search.

    Args:
        samples: triplets of every slot ``[K]``, one list a sampled input.
        cost: measures one sample under one grouping.
        skip: as in `Grouping.groups`.
        epsilons: search space of the tolerance.
        thresholds: search space of the threshold, in rows.

    Raises:
        ValueError: an empty search space.
    """
    settings = itertools.product(epsilons, thresholds)
    return _quickest([Adaptive(*setting) for setting in settings], samples, cost, skip)


def search_sorted(
    samples: Sequence[Sequence[int]],
    cost: Cost,
    *,
    skip: int = -1,
    paddings: Sequence[float] = PADDINGS,
) -> Sorted:
    """Find the padding threshold of the least time over sampled inputs of one layer.

    Args:
        samples: triplets of every slot ``[K]``, one list a sampled input.
        cost: measures one sample under one grouping.
        skip: as in `Grouping.groups`.
        paddings: search space.

    Raises:
        ValueError: an empty search space.
    """
    return _quickest([Sorted(padding) for padding in paddings], samples, cost, skip)


def search_tile(tiles: Iterable[int], cost: Callable[[int], float]) -> int:
    """Find the channel tile of the least time (Minuet Algorithm 2).

    Args:
        tiles: search space, `pcnn.kernels.row_tiles.tiles_of` the channels of a layer.
        cost: measures a gather, or a scatter, with this tile over all sampled inputs.

    Raises:
        ValueError: an empty search space.
    """
    return min(tiles, key=cost)


def _quickest(
    candidates: Sequence[Strategy], samples: Sequence[Sequence[int]], cost: Cost, skip: int
) -> Strategy:
    measured: dict[tuple[int, tuple[Group, ...]], float] = {}

    def total(candidate: Strategy) -> float:
        seconds = 0.0
        for number, sizes in enumerate(samples):
            key = number, candidate.groups(sizes, skip)
            # many settings group a sample alike: one measurement serves them all
            if key not in measured:
                measured[key] = cost(sizes, key[1])
            seconds += measured[key]
        return seconds

    return min(candidates, key=total)
