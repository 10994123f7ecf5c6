"""Which slots are multiplied together: batched products trade a few padded rows for fewer launches.

The rows gathered for slot k are a matrix of ``sizes[k]`` rows. Slots of one group are padded to the
longest of them and multiplied by one ``bmm``; a group of one slot is a plain ``mm`` and has no
padding. Sizes are integers on the host (`KernelMap.offsets`); everything here is a pure function of
them. The groups of a strategy hold every slot with triplets once, but for ``skip``, which is
multiplied without gathering (the centre of a submanifold convolution; -1 for none).

Sources: TorchSparse (MLSys 2022) section 4.2 and Appendix B for `Fixed` and `Adaptive`; Minuet
(EuroSys 2024) section 5.2.2 for `Sorted`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """Slots that are multiplied by one call."""

    slots: tuple[int, ...]  # numbers of the slots, ascending
    rows: int  # rows every slot is padded to: the size of the longest


#: Tolerances and ``mm`` thresholds that are searched for a layer (Algorithm 5).
EPSILONS = tuple(step / 20 for step in range(21))
THRESHOLDS = (0, *(1 << power for power in range(10, 21)), math.inf)


@dataclass(frozen=True)
class Fixed:
    """At most three groups, whatever the sizes (TorchSparse 4.2.2, Fig. 6c).

    Where sizes are symmetric: the first slots and their mirrors, the other pairs, the centre. The
    paper observes that slots 0 to 3 of a 3 x 3 x 3 kernel have similar sizes, and the other pairs;
    the same share of the pairs is taken of kernels of other sizes. Elsewhere (strided
    convolutions) all slots have similar sizes and are one group.
    """

    def groups(self, sizes: Sequence[int], skip: int = -1) -> tuple[Group, ...]:
        volume = len(sizes)
        if not _mirrored(sizes):
            parts = [list(range(volume))]
        else:
            half = volume // 2
            head = max(1, round(half * 4 / 13))
            centre = [half] if volume % 2 else []
            first = [k for k in range(volume) if min(k, volume - 1 - k) < head and k not in centre]
            rest = [k for k in range(volume) if k not in first and k not in centre]
            parts = [first, rest, centre]
        kept = ([k for k in part if sizes[k] and k != skip] for part in parts)
        return tuple(_group(part, sizes) for part in kept if part)


@dataclass(frozen=True)
class Adaptive:
    """Slots in their order, a new group where padding grows too much (TorchSparse 4.2.3).

    A group grows while its redundant computation ``1 - theoretical FLOPs / actual FLOPs``, which is
    ``1 - sum of sizes / (slots x longest)``, stays within ``epsilon``. Mirrored slots join together
    where sizes are symmetric. A group whose longest slot has ``threshold`` rows or more is split
    into plain products.

    The redundancy is the one of the text of section 4.2.3; Algorithm 4 bounds it from above by
    ``1 - n_min / n_max``.
    """

    epsilon: float  # tolerance of redundant computation, in 0..1. 0 pads nothing, 1 pads everything
    threshold: float = math.inf  # rows S from which mm is used instead of bmm

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon must be in 0..1, got {self.epsilon}")
        if self.threshold < 0:
            raise ValueError(f"threshold must be at least 0 rows, got {self.threshold}")

    def groups(self, sizes: Sequence[int], skip: int = -1) -> tuple[Group, ...]:
        def fits(rows: int, padded: int) -> bool:
            return 1 - rows / padded <= self.epsilon

        return _grown(_units(sizes, skip), sizes, fits, self.threshold)


#: Mirrored slots in pairs: no padding (TorchSparse 4.2.1).
SYMMETRIC = Adaptive(0)

#: Every slot on its own: no padding, as many products as slots (TorchSparse Fig. 6b).
SEPARATE = Adaptive(0, 0)


@dataclass(frozen=True)
class Sorted:
    """Slots sorted by size, then grouped while little is padded (Minuet 5.2.2, Fig. 5c).

    A group grows while its padding overhead, padded rows over rows that are no padding, stays
    within ``padding``. Sorting brings slots of similar sizes together.
    """

    padding: float  # largest overhead of a group: -1 multiplies every slot on its own
    threshold: float = math.inf  # rows from which mm is used instead of bmm

    def __post_init__(self) -> None:
        if self.threshold < 0:
            raise ValueError(f"threshold must be at least 0 rows, got {self.threshold}")

    def groups(self, sizes: Sequence[int], skip: int = -1) -> tuple[Group, ...]:
        def fits(rows: int, padded: int) -> bool:
            return padded - rows <= self.padding * rows

        slots = [k for k in range(len(sizes)) if sizes[k] and k != skip]
        ordered = sorted(slots, key=lambda k: sizes[k])
        return _grown([[k] for k in ordered], sizes, fits, self.threshold)


#: Strategies of the papers.
Grouping = Adaptive | Fixed | Sorted


def _group(slots: Sequence[int], sizes: Sequence[int]) -> Group:
    return Group(tuple(sorted(slots)), max(sizes[k] for k in slots))


def _mirrored(sizes: Sequence[int]) -> bool:
    """True if slot k has the size of slot K - 1 - k: so it is in every submanifold convolution."""
    return list(sizes) == list(sizes)[::-1]


def _units(sizes: Sequence[int], skip: int) -> list[list[int]]:
    """Slots with triplets, mirrored ones together where sizes are symmetric."""
    volume = len(sizes)
    units = [[k] for k in range(volume)]
    if _mirrored(sizes):
        units = [sorted({k, volume - 1 - k}) for k in range((volume + 1) // 2)]
    kept = ([k for k in unit if sizes[k] and k != skip] for unit in units)
    return [unit for unit in kept if unit]


def _grown(
    units: Iterable[Sequence[int]],
    sizes: Sequence[int],
    fits: Callable[[int, int], bool],
    threshold: float,
) -> tuple[Group, ...]:
    """Groups of neighbouring units, each as long as ``fits(rows, rows with padding)`` allows."""
    found: list[list[int]] = []
    rows = longest = 0
    for unit in units:
        size = sizes[unit[0]]  # slots of a unit are of one size
        count = len(unit) + (len(found[-1]) if found else 0)
        grown = rows + size * len(unit)
        if found and fits(grown, count * max(longest, size)):
            found[-1].extend(unit)
            rows, longest = grown, max(longest, size)
        else:
            found.append(list(unit))
            rows, longest = size * len(unit), size
    groups: list[Group] = []
    for slots in found:
        group = _group(slots, sizes)
        alone = group.rows >= threshold
        groups += [Group((k,), sizes[k]) for k in group.slots] if alone else [group]
    return tuple(groups)
