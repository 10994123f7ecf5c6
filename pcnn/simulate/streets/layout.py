"""The plan of a street: cross-section of a sequence, and blocks with their plots and patches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcnn.simulate.streets.settings import BLOCK_LENGTH, StreetSettings
from pcnn.simulate.streets.zones import Patch, Zone

WIDTH = 78.0  # [m] ground reaches this far to either side
ISLAND_HALF = 0.6  # [m] half width of a traffic island


@dataclass(frozen=True)
class Side:
    """Distances from the centre line [m] on one side, from the road outwards."""

    sign: int  # +1 left, -1 right
    kerb: float  # end of the carriageway
    bay: float  # end of the parking bay (== kerb where there is none)
    verge: float  # end of the grass strip (== bay where there is none)
    edge: float  # end of the sidewalk: plots begin here

    def span(self, inner: float, outer: float) -> tuple[float, float]:
        """Return the interval of d between two distances from the centre line."""
        return (inner, outer) if self.sign > 0 else (-outer, -inner)


@dataclass(frozen=True)
class Crossing:
    """Where a side street meets the street: with two arms a crossroads, with one a T-junction."""

    s: float  # middle of the side street
    half: float  # half width of its carriageway
    walk: float  # width of the sidewalks along it
    arms: tuple[bool, bool]  # to the left, to the right

    @property
    def reach(self) -> float:
        """Half width with sidewalks [m]."""
        return self.half + self.walk

    def has_arm(self, side: Side) -> bool:
        """Tell whether the side street goes on beyond a side."""
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

    index: int
    s0: float
    s1: float
    sides: tuple[Side, Side]
    crossing: Crossing | None
    island: tuple[float, float] | None
    plots: tuple[Plot, ...]
    patches: tuple[Patch, ...]

    def blocked(self, s: float) -> bool:
        """Tell whether s lies where a side street and its corners must stay free."""
        return self.crossing is not None and abs(s - self.crossing.s) < self.crossing.half + 1.0

    def bay_spans(self) -> list[tuple[float, float]]:
        """Return the stretches of s along which parking bays run."""
        if self.crossing is None:
            return [(self.s0 + 1.5, self.s1 - 1.5)]
        middle, gap = self.crossing.s, self.crossing.reach + 3.0
        return [(self.s0 + 1.5, middle - gap), (middle + gap, self.s1 - 1.5)]


def draw_sides(rng: np.random.Generator, settings: StreetSettings) -> tuple[Side, Side]:
    """Draw the cross-section of a sequence: at least one side has a parking bay."""
    right = bool(rng.random() < 0.4)
    with_bay = (not right or bool(rng.random() < 0.7), right)
    sides = []
    for sign, has_bay in zip((1, -1), with_bay, strict=True):
        kerb = settings.road_half_width
        bay = kerb + (settings.parking_width if has_bay else 0.0)
        has_verge = rng.random() < 0.6 and settings.verge_width > 0.8
        verge = bay + (settings.verge_width if has_verge else 0.0)
        edge = verge + settings.sidewalk_width * float(rng.uniform(0.9, 1.1))
        sides.append(Side(sign, kerb, bay, verge, edge))
    return sides[0], sides[1]


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


def _uses(rng: np.random.Generator, settings: StreetSettings, count: int) -> list[str]:
    """Draw what the plots of a block are used for; one has a forecourt."""
    shares = np.array([settings.park_share, settings.forecourt_share, 0.12])
    uses = [
        str(u)
        for u in rng.choice(
            ["park", "forecourt", "carpark", "house"], count, p=[*shares, 1 - shares.sum()]
        )
    ]
    if "forecourt" not in uses:
        uses[int(rng.integers(count))] = "forecourt"
    return uses


def _ground(
    settings: StreetSettings,
    s0: float,
    s1: float,
    sides: tuple[Side, Side],
    crossing: Crossing | None,
    island: tuple[float, float] | None,
    plots: list[Plot],
    spans: list[tuple[float, float]],
) -> list[Patch]:
    half = settings.road_half_width
    patches = []
    for side in sides:
        patches.append(Patch(s0, s1, *side.span(side.kerb, side.edge), Zone.SIDEWALK))
        if side.verge > side.bay:
            for a, b in spans:
                patches.append(Patch(a, b, *side.span(side.bay, side.verge), Zone.TERRAIN))
        if side.bay > side.kerb:
            for a, b in spans:
                patches.append(Patch(a, b, *side.span(side.kerb, side.bay), Zone.PARKING))
    for plot in plots:
        side = plot.side
        ground = {"forecourt": Zone.GRAVEL, "carpark": Zone.PARKING}.get(plot.use)
        if ground is not None:
            reach = side.edge + plot.front + (0.0 if plot.use == "forecourt" else 6.0)
            patches.append(Patch(plot.s0, plot.s1, *side.span(side.edge, reach), ground))
        if plot.driveway is not None:
            span = side.span(side.edge, side.edge + plot.front)
            patches.append(Patch(plot.driveway, plot.driveway + 3.0, *span, Zone.PARKING))
    if crossing is not None:
        low, high = crossing.s - crossing.half, crossing.s + crossing.half
        for side in filter(crossing.has_arm, sides):
            out = side.span(side.edge, WIDTH)
            patches.append(
                Patch(crossing.s - crossing.reach, crossing.s + crossing.reach, *out, Zone.SIDEWALK)
            )
            patches.append(Patch(low, high, *side.span(side.kerb, WIDTH), Zone.ROAD))
            line = side.span(side.edge + 0.4, side.edge + 0.8)  # where the side street stops
            patches.append(Patch(low, high, *line, Zone.MARKING))
    patches.append(Patch(s0, s1, -half, half, Zone.ROAD))
    for start in np.arange(s0 + 1.5, s1 - 3.0, 9.0):
        patches.append(Patch(float(start), float(start) + 3.0, -0.07, 0.07, Zone.MARKING))
    for side in sides:
        line = side.span(half - 0.32, half - 0.20)
        patches += [Patch(a, b, *line, Zone.MARKING) for a, b in spans]
    if crossing is not None:  # bars of a zebra crossing over the main road
        bars = np.arange(-half + 0.4, half - 0.5, 1.0)
        at = crossing.s - crossing.half - 4.5
        patches += [Patch(at, at + 3.0, float(d), float(d) + 0.5, Zone.MARKING) for d in bars]
    if island is not None:
        patches.append(Patch(*island, -ISLAND_HALF, ISLAND_HALF, Zone.ISLAND))
    return patches


def draw_block(
    rng: np.random.Generator, settings: StreetSettings, sides: tuple[Side, Side], index: int
) -> Block:
    """Draw block `index`, which covers s from index to index + 1 block lengths."""
    s0, s1 = index * BLOCK_LENGTH, (index + 1) * BLOCK_LENGTH
    crossing = island = None
    if rng.random() < settings.crossing_share:
        arms = ((True, True), (True, False), (False, True))[int(rng.choice(3, p=[0.5, 0.25, 0.25]))]
        middle, half = s0 + float(rng.uniform(15.0, 25.0)), float(rng.uniform(2.6, 4.2))
        crossing = Crossing(middle, half, float(rng.uniform(1.4, 2.6)), arms)
    if rng.random() < settings.island_share:
        start = s0 + float(rng.uniform(1.0, 3.0)) if crossing else s0 + float(rng.uniform(3, 28))
        island = (start, start + float(rng.uniform(4.0, 6.0) if crossing else rng.uniform(6, 9)))
    cut = BLOCK_LENGTH / 2 + s0 if crossing is None else crossing.s
    uses = _uses(rng, settings, 4)
    plots = []
    for side in sides:
        gap = crossing.reach if crossing is not None and crossing.has_arm(side) else 0.0
        for a, b in ((s0, cut - gap), (cut + gap, s1)):
            plots.append(_draw_plot(rng, settings, side, a, b, uses.pop()))
    empty = Block(index, s0, s1, sides, crossing, island, tuple(plots), ())
    patches = _ground(settings, s0, s1, sides, crossing, island, plots, empty.bay_spans())
    return Block(index, s0, s1, sides, crossing, island, tuple(plots), tuple(patches))
