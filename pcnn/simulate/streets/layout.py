"""The plan of a street: cross-section, blocks, their plots and patches of ground."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pcnn.simulate.streets.settings import BLOCK_LENGTH, Course, Style

WIDTH = 78.0  # [m] ground reaches this far to either side
LOT = 15.0  # [m] depth of a parking lot


class Zone(IntEnum):
    """Kinds of ground."""

    TERRAIN, ROAD, MARKING, PARKING, SIDEWALK, GRAVEL, WILD = range(7)


class Patch(NamedTuple):
    """A rectangle of one kind of ground in street coordinates; later patches cover earlier ones."""

    s0: float
    s1: float
    d0: float
    d1: float
    zone: Zone


@dataclass(frozen=True)
class Side:
    """Distances from the centre line [m] on one side, from the road outwards."""

    sign: int  # +1 left, -1 right
    kerb: float  # end of the carriageway
    bay: float  # end of the parking bay (== kerb without a bay)
    walk: float  # begin of the sidewalk (== kerb without a verge)
    edge: float  # end of the sidewalk: plots begin here
    bank: float  # slope of the land beyond the edge
    deep: bool  # cars stand across the bay

    @property
    def has_walk(self) -> bool:
        return self.edge > self.walk

    def span(self, inner: float, outer: float) -> tuple[float, float]:
        return (inner, outer) if self.sign > 0 else (-outer, -inner)

    @property
    def along_traffic(self) -> float:
        """Yaw of the traffic on this side [rad]."""
        return 0.0 if self.sign < 0 else np.pi

    @property
    def to_road(self) -> float:
        """Yaw that looks from this side to the road [rad]."""
        return -self.sign * np.pi / 2


class Crossing(NamedTuple):
    """A side street that crosses the street."""

    s: float  # middle of the side street
    half: float  # half width of its carriageway
    reach: float  # half width with sidewalks


@dataclass(frozen=True)
class Plot:
    """A piece of land behind the sidewalk."""

    side: Side
    s0: float
    s1: float
    use: str  # "house" | "forecourt" | "park" | "wild" | "lot"
    front: float  # [m] between sidewalk and building
    drive: tuple[float, float] | None = None  # s of the driveway


@dataclass(frozen=True)
class Block:
    """One block of a street: its plots, its ground and the free ends of its parking bays."""

    s0: float
    s1: float
    sides: tuple[Side, Side]
    crossing: Crossing | None
    median: float = 0.0  # half width of the strip in the middle of the road [m]
    plots: tuple[Plot, ...] = ()
    patches: tuple[Patch, ...] = ()

    def is_crossed(self, s: float, margin: float = 1.0) -> bool:
        return self.crossing is not None and abs(s - self.crossing.s) < self.crossing.half + margin

    def bay_spans(self) -> list[tuple[float, float]]:
        if self.crossing is None:
            return [(self.s0 + 1.5, self.s1 - 1.5)]
        middle, gap = self.crossing.s, self.crossing.reach + 3.0
        return [(self.s0 + 1.5, middle - gap), (middle + gap, self.s1 - 1.5)]


def draw_sides(rng: np.random.Generator, course: Course) -> tuple[Side, Side]:
    """Draw the cross-section of a sequence: one with bays has one on one side at least."""
    kind, kerb = course.kind, course.road_half_width
    bays = bool(rng.random() < kind.bay)
    right = bool(rng.random() < 0.4)

    def side(sign: int, has_bay: bool) -> Side:
        deep = bool(rng.random() < kind.deep)
        bay = kerb + has_bay * course.parking_width * (2.1 if deep else 1.0)
        verge = rng.uniform(0.8, 4.0) if rng.random() < kind.verge else 0.0
        wide = course.sidewalk_width * rng.uniform(0.9, 1.1) if rng.random() < kind.walk else 0.0
        walk = bay + verge if verge or not wide else kerb
        bank = float(np.clip(rng.normal(0.0, kind.bank), -0.2, 0.35))
        return Side(sign, kerb, bay, walk, max(walk, bay) + wide, bank, deep)

    return side(1, bays and (not right or bool(rng.random() < 0.7))), side(-1, bays and right)


def draw_block(
    rng: np.random.Generator, course: Course, style: Style, sides: tuple[Side, Side], index: int
) -> Block:
    kind = course.kind
    s0, s1 = index * BLOCK_LENGTH, (index + 1) * BLOCK_LENGTH
    crossing = None
    if rng.random() < style.crossing_share * (1.0 if kind.is_built_up else 0.5 * kind.people):
        half, walk = rng.uniform((2.5, 0.0), (5.6, 2.4)).tolist()
        walk *= walk > 0.8
        crossing = Crossing(s0 + rng.uniform(17.0, 23.0), half, half + walk)
    cut, gap = (s0 + BLOCK_LENGTH / 2, 0.0) if crossing is None else (crossing.s, crossing.reach)
    ends = [(side, a, b) for side in sides for a, b in ((s0, cut - gap), (cut + gap, s1))]
    uses = rng.choice(["house", "park", "forecourt", "lot"], len(ends), p=kind.plots).tolist()
    if course.scene == "town":
        uses[int(rng.integers(len(ends)))] = "forecourt"
    plots = []
    for use, (side, a, b) in zip(uses, ends, strict=True):
        front = float(np.clip(rng.normal(style.front_depth + kind.front, 1.2), 0.8, 14.0))
        if use == "park" and course.scene != "town" and rng.random() < 0.5:
            use = "wild"  # a park that begins with knee-high plants
        if use == "forecourt":
            front = 2.0 * 10.0 ** rng.random()
        drive = None
        if use == "house" and rng.random() < kind.drive:
            start, wide = rng.uniform(a + 1.0, b - 7.0), rng.uniform(2.6, 5.5)
            drive = (start, start + wide)
        plots.append(Plot(side, a, b, use, front, drive))
    block = Block(s0, s1, sides, crossing, course.median, tuple(plots))
    return replace(block, patches=tuple(_patches(block)))


def _patches(block: Block) -> list[Patch]:
    patches: list[Patch] = []
    spans, crossing, half = block.bay_spans(), block.crossing, block.sides[0].kerb

    def lay(zone: Zone, s: tuple[float, float], d: tuple[float, float]) -> None:
        patches.append(Patch(*s, *d, zone))

    whole = (block.s0, block.s1)
    for side in block.sides:
        if side.has_walk:
            lay(Zone.SIDEWALK, whole, side.span(side.walk, side.edge))
        for span in spans:
            lay(Zone.PARKING, span, side.span(side.kerb, side.bay))
    for plot in block.plots:
        if plot.use == "forecourt":
            ground = plot.side.span(plot.side.edge, plot.side.edge + plot.front)
            lay(Zone.GRAVEL, (plot.s0, plot.s1), ground)
        if plot.use == "wild":
            ground = plot.side.span(plot.side.edge + 0.3, plot.side.edge + plot.front)
            lay(Zone.WILD, (plot.s0, plot.s1), ground)
        if plot.use == "lot":
            ground = plot.side.span(plot.side.edge + 0.6, plot.side.edge + LOT)
            lay(Zone.PARKING, (plot.s0 + 0.8, plot.s1 - 0.8), ground)
            lay(
                Zone.PARKING,
                (plot.s0 + 2.0, plot.s0 + 7.0),
                plot.side.span(plot.side.bay, plot.side.edge + 1.0),
            )
        if plot.drive is not None:
            ground = plot.side.span(plot.side.bay, plot.side.walk)
            lay(Zone.PARKING, plot.drive, ground)
            ground = plot.side.span(plot.side.edge, plot.side.edge + plot.front)
            lay(Zone.PARKING, plot.drive, ground)
    if crossing is not None:
        road = (crossing.s - crossing.half, crossing.s + crossing.half)
        walks = (crossing.s - crossing.reach, crossing.s + crossing.reach)
        for side in block.sides:
            if side.has_walk:
                lay(Zone.SIDEWALK, walks, side.span(side.edge, WIDTH))
            lay(Zone.ROAD, road, side.span(side.kerb, WIDTH))
            for y in (0.0, 0.25, 0.5, 0.75):  # round corners
                more = crossing.half * (1.0 - np.sqrt(1.0 - (1.0 - y) ** 2))
                wide = (road[0] - more, road[1] + more)
                deep = side.kerb + y * crossing.half
                lay(Zone.ROAD, wide, side.span(deep, deep + 0.25 * crossing.half))
            # the line at which the side street stops
            lay(Zone.MARKING, road, side.span(side.edge + 0.4, side.edge + 0.8))
    lay(Zone.ROAD, whole, (-half, half))
    for start in np.arange(block.s0 + 1.5, block.s1 - 3.0, 9.0).tolist():
        for d in [-half / 2, half / 2] if block.median else [0.0]:
            lay(Zone.MARKING, (start, start + 3.0), (d - 0.07, d + 0.07))
    if block.median:
        lay(Zone.TERRAIN, whole, (-block.median, block.median))
    for side in block.sides:
        for span in spans if side.bay > half or block.median else []:
            lay(Zone.MARKING, span, side.span(half - 0.32, half - 0.20))
    if crossing is not None:  # bars of a zebra crossing over the main road
        at = crossing.s - crossing.half - 4.5
        for d in np.arange(-half + 0.4, half - 0.5, 1.0).tolist():
            lay(Zone.MARKING, (at, at + 3.0), (d, d + 0.5))
    return patches
