"""The plan of a street: cross-section, blocks, their plots and patches of ground."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pcnn.simulate.streets.settings import BLOCK_LENGTH, Course, StreetSettings

WIDTH = 78.0  # [m] ground reaches this far to either side
ISLAND_HALF = 0.6  # [m] half width of a traffic island


class Zone(IntEnum):
    """Kinds of ground."""

    TERRAIN = 0
    ROAD = 1
    MARKING = 2
    PARKING = 3
    SIDEWALK = 4
    GRAVEL = 5
    ISLAND = 6


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
    verge: float  # end of the grass strip (== bay without a strip)
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


@dataclass(frozen=True)
class Crossing:
    """A side street that meets the street: with two arms a crossroads, with one a T-junction."""

    s: float  # middle of the side street
    half: float  # half width of its carriageway
    walk: float  # width of the sidewalks along it
    arms: tuple[bool, bool]  # to the left, to the right

    @property
    def reach(self) -> float:
        """Half width with sidewalks [m]."""
        return self.half + self.walk

    def has_arm(self, side: Side) -> bool:
        return self.arms[0] if side.sign > 0 else self.arms[1]


@dataclass(frozen=True)
class Plot:
    """A piece of land behind the sidewalk."""

    side: Side
    s0: float
    s1: float
    use: str  # "house" | "forecourt" | "park" | "carpark"
    front: float  # [m] between sidewalk and building
    driveway: float | None  # start of a 3 m wide paved entrance


@dataclass(frozen=True)
class Block:
    """One block of a street: its plots, its ground and the free ends of its parking bays."""

    s0: float
    s1: float
    sides: tuple[Side, Side]
    crossing: Crossing | None
    island: tuple[float, float] | None
    plots: tuple[Plot, ...]
    patches: tuple[Patch, ...] = ()

    def blocked(self, s: float) -> bool:
        return self.crossing is not None and abs(s - self.crossing.s) < self.crossing.half + 1.0

    def arm(self, side: Side) -> Crossing | None:
        return self.crossing if self.crossing and self.crossing.has_arm(side) else None

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
        has_verge = rng.random() < 0.6 and course.verge_width > 0.8
        verge = bay + (course.verge_width if has_verge else 0.0)
        return Side(sign, kerb, bay, verge, verge + course.sidewalk_width * rng.uniform(0.9, 1.1))

    return side(1, not right or bool(rng.random() < 0.7)), side(-1, right)


def draw_block(
    rng: np.random.Generator, settings: StreetSettings, sides: tuple[Side, Side], index: int
) -> Block:
    s0, s1 = index * BLOCK_LENGTH, (index + 1) * BLOCK_LENGTH
    crossing = island = None
    if rng.random() < settings.crossing_share:
        arms = ((True, True), (True, False), (False, True))[int(rng.choice(3, p=[0.5, 0.25, 0.25]))]
        crossing = Crossing(
            s0 + rng.uniform(15.0, 25.0), rng.uniform(2.6, 4.2), rng.uniform(1.4, 2.6), arms
        )
    if rng.random() < settings.island_share:
        start = s0 + (rng.uniform(1, 3) if crossing else rng.uniform(3, 28))
        island = (start, start + (rng.uniform(4, 6) if crossing else rng.uniform(6, 9)))
    cut = s0 + BLOCK_LENGTH / 2 if crossing is None else crossing.s
    block, plots = Block(s0, s1, sides, crossing, island, ()), []
    uses = _uses(rng, settings, 4)
    for side in sides:
        arm = block.arm(side)
        gap = 0.0 if arm is None else arm.reach
        for a, b in ((s0, cut - gap), (cut + gap, s1)):
            plots.append(_draw_plot(rng, settings, side, a, b, uses.pop()))
    block = replace(block, plots=tuple(plots))
    return replace(block, patches=tuple(_patches(block, settings.road_half_width)))


def _uses(rng: np.random.Generator, settings: StreetSettings, count: int) -> list[str]:
    """Draw the uses of the plots of a block; one is a forecourt."""
    shares = np.array([settings.park_share, settings.forecourt_share, 0.12])
    uses: list[str] = rng.choice(
        ["park", "forecourt", "carpark", "house"], count, p=[*shares, 1 - shares.sum()]
    ).tolist()
    if "forecourt" not in uses:
        uses[int(rng.integers(count))] = "forecourt"
    return uses


def _draw_plot(
    rng: np.random.Generator, settings: StreetSettings, side: Side, s0: float, s1: float, use: str
) -> Plot:
    front = float(np.clip(rng.normal(settings.front_depth, 1.2), 0.8, 11.0))
    if use == "carpark":
        front = 6.2
    driveway = None
    if use == "house" and front > 2.0 and s1 - s0 > 12.0 and rng.random() < 0.6:
        driveway = s0 + 0.6 if rng.random() < 0.5 else s1 - 3.6
    return Plot(side, s0, s1, use, front, driveway)


def _patches(block: Block, half: float) -> list[Patch]:
    patches: list[Patch] = []
    spans, crossing = block.bay_spans(), block.crossing

    def lay(zone: Zone, s: tuple[float, float], d: tuple[float, float]) -> None:
        patches.append(Patch(*s, *d, zone))

    whole = (block.s0, block.s1)
    for side in block.sides:
        lay(Zone.SIDEWALK, whole, side.span(side.kerb, side.edge))
        for span in spans:
            if side.verge > side.bay:
                lay(Zone.TERRAIN, span, side.span(side.bay, side.verge))
            if side.bay > side.kerb:
                lay(Zone.PARKING, span, side.span(side.kerb, side.bay))
    for plot in block.plots:
        side, s = plot.side, (plot.s0, plot.s1)
        if plot.use == "forecourt":
            lay(Zone.GRAVEL, s, side.span(side.edge, side.edge + plot.front))
        if plot.use == "carpark":
            lay(Zone.PARKING, s, side.span(side.edge, side.edge + plot.front + 6.0))
        if plot.driveway is not None:
            entrance = (plot.driveway, plot.driveway + 3.0)
            lay(Zone.PARKING, entrance, side.span(side.edge, side.edge + plot.front))
    if crossing is not None:
        road = (crossing.s - crossing.half, crossing.s + crossing.half)
        walks = (crossing.s - crossing.reach, crossing.s + crossing.reach)
        for side in filter(crossing.has_arm, block.sides):
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
    if block.island is not None:
        lay(Zone.ISLAND, block.island, (-ISLAND_HALF, ISLAND_HALF))
    return patches
