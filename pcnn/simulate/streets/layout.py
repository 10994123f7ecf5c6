"""The plan of a street: cross-section, blocks, their plots and patches of ground."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pcnn.simulate.streets.settings import BLOCK_LENGTH, Course, Style

WIDTH = 78.0  # [m] ground reaches this far to either side


class Zone(IntEnum):
    """Kinds of ground."""

    TERRAIN, ROAD, MARKING, PARKING, SIDEWALK, GRAVEL = range(6)


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
    edge: float  # end of the sidewalk: plots begin here

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
    use: str  # "house" | "forecourt" | "park"
    front: float  # [m] between sidewalk and building


@dataclass(frozen=True)
class Block:
    """One block of a street: its plots, its ground and the free ends of its parking bays."""

    s0: float
    s1: float
    sides: tuple[Side, Side]
    crossing: Crossing | None
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
    """Draw the cross-section of a sequence: at least one side has a parking bay."""
    right = bool(rng.random() < 0.4)

    def side(sign: int, has_bay: bool) -> Side:
        kerb = course.road_half_width
        bay = kerb + (course.parking_width if has_bay else 0.0)
        return Side(sign, kerb, bay, bay + course.sidewalk_width * rng.uniform(0.9, 1.1))

    return side(1, not right or bool(rng.random() < 0.7)), side(-1, right)


def draw_block(
    rng: np.random.Generator, style: Style, sides: tuple[Side, Side], index: int
) -> Block:
    s0, s1 = index * BLOCK_LENGTH, (index + 1) * BLOCK_LENGTH
    crossing = None
    if rng.random() < style.crossing_share:
        half, walk = rng.uniform((2.6, 1.4), (4.2, 2.6)).tolist()
        crossing = Crossing(s0 + rng.uniform(15.0, 25.0), half, half + walk)
    cut, gap = (s0 + BLOCK_LENGTH / 2, 0.0) if crossing is None else (crossing.s, crossing.reach)
    ends = [(side, a, b) for side in sides for a, b in ((s0, cut - gap), (cut + gap, s1))]
    chances = np.array([style.park_share, style.forecourt_share])
    uses = rng.choice(
        ["park", "forecourt", "house"], len(ends), p=[*chances, 1 - chances.sum()]
    ).tolist()
    uses[int(rng.integers(len(ends)))] = "forecourt"
    plots = []
    for use, (side, a, b) in zip(uses, ends, strict=True):
        front = float(np.clip(rng.normal(style.front_depth, 1.2), 0.8, 11.0))
        plots.append(Plot(side, a, b, use, front))
    block = Block(s0, s1, sides, crossing, tuple(plots))
    return replace(block, patches=tuple(_patches(block)))


def _patches(block: Block) -> list[Patch]:
    patches: list[Patch] = []
    spans, crossing, half = block.bay_spans(), block.crossing, block.sides[0].kerb

    def lay(zone: Zone, s: tuple[float, float], d: tuple[float, float]) -> None:
        patches.append(Patch(*s, *d, zone))

    whole = (block.s0, block.s1)
    for side in block.sides:
        lay(Zone.SIDEWALK, whole, side.span(side.kerb, side.edge))
        for span in spans:
            lay(Zone.PARKING, span, side.span(side.kerb, side.bay))
    for plot in block.plots:
        if plot.use == "forecourt":
            ground = plot.side.span(plot.side.edge, plot.side.edge + plot.front)
            lay(Zone.GRAVEL, (plot.s0, plot.s1), ground)
    if crossing is not None:
        road = (crossing.s - crossing.half, crossing.s + crossing.half)
        walks = (crossing.s - crossing.reach, crossing.s + crossing.reach)
        for side in block.sides:
            lay(Zone.SIDEWALK, walks, side.span(side.edge, WIDTH))
            lay(Zone.ROAD, road, side.span(side.kerb, WIDTH))
            # the line at which the side street stops
            lay(Zone.MARKING, road, side.span(side.edge + 0.4, side.edge + 0.8))
    lay(Zone.ROAD, whole, (-half, half))
    for start in np.arange(block.s0 + 1.5, block.s1 - 3.0, 9.0).tolist():
        lay(Zone.MARKING, (start, start + 3.0), (-0.07, 0.07))
    for side in block.sides:
        for span in spans:
            lay(Zone.MARKING, span, side.span(half - 0.32, half - 0.20))
    if crossing is not None:  # bars of a zebra crossing over the main road
        at = crossing.s - crossing.half - 4.5
        for d in np.arange(-half + 0.4, half - 0.5, 1.0).tolist():
            lay(Zone.MARKING, (at, at + 3.0), (d, d + 0.5))
    return patches
