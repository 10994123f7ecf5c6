"""Sizes of plans that do not look at the numbers of sites, so that CUDA graphs hold them."""

from __future__ import annotations

from dataclasses import dataclass


class WaitsForDevice(Exception):
    """A plan that waits for the device, so that no CUDA graph holds it; the message says why."""


@dataclass(frozen=True)
class Room:
    """Sizes of a plan that does not know its cloud: those of the tensors that it makes."""

    points: int  # cells that it takes
    rows: tuple[int, ...]  # sites of the finest level, then of every other level that is sorted
    passes: tuple[int, int]  # of the two sorts
    words: int = 0  # of the bitmaps that levels are found in; 0 where they are sorted
    whole: bool = False  # the finest level is found there too
    pairs: tuple[int, ...] = ()  # of the maps whose search lists them

    def holds(self, other: Room) -> bool:
        """True if a cloud that takes the other room fits into this one."""
        theirs, own = ((*r.rows, *r.passes, r.words, *r.pairs) for r in (other, self))
        return all(needed <= there for needed, there in zip(theirs, own, strict=True))


@dataclass(frozen=True)
class PlanRoom:
    """Sizes of a plan that does not know its cloud, and what else clouds decide."""

    sizes: Room  # of levels and sorts
    #: maps, by number in the recipe and side, whose ``fitting_steps`` are in sections
    cut: frozenset[tuple[int, bool]] = frozenset()
