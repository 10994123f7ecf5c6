"""Sizes of plans that do not look at the numbers of sites, so that CUDA graphs hold them."""

from __future__ import annotations

from dataclasses import dataclass


class WaitsForDevice(Exception):
    """A plan that waits for the device, so that no CUDA graph holds it; the message says why."""


@dataclass(frozen=True)
class Room:
    """Sizes of a plan that does not know its cloud: those of the tensors that it makes.

    Args:
        points: cells that it takes.
        rows: sites of the finest level, then of every other level that is sorted.
        passes: of the two sorts.
        words: of the bitmaps that levels are found in; 0 where they are sorted.
        whole: the finest level is found there too.
        pairs: of the maps whose search lists them (`pcnn.ops.device_plan.DevicePlan.listing`).
    """

    points: int
    rows: tuple[int, ...]
    passes: tuple[int, int]
    words: int = 0
    whole: bool = False
    pairs: tuple[int, ...] = ()

    def holds(self, other: Room) -> bool:
        """True if a cloud that takes the other room fits into this one."""
        theirs, own = ((*r.rows, *r.passes, r.words, *r.pairs) for r in (other, self))
        return all(needed <= there for needed, there in zip(theirs, own, strict=True))


@dataclass(frozen=True)
class PlanRoom:
    """Sizes of a plan that does not know its cloud, and what else clouds decide.

    Args:
        sizes: of levels and sorts.
        cut: maps, by number in the recipe and side, whose ``fitting_tiles`` are in sections.
    """

    sizes: Room
    cut: frozenset[tuple[int, bool]] = frozenset()
