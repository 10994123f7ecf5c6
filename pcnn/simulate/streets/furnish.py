"""What stands along a street: on sidewalks, in parking bays, on the plots behind, and far away."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pcnn.simulate.streets.layout import LOT, Plot, Side
from pcnn.simulate.streets.site import Site, footprint, make


def furnish(site: Site) -> None:
    for plot in site.block.plots:
        if plot.drive is not None:
            _driveway(site, plot, *plot.drive)
        if plot.use != "lot":
            _strays(site, plot)
    _side_street(site)
    for side in site.block.sides:
        _posts(site, side)
        _street_trees(site, side)
        _low_plants(site, side)
        if side.has_walk:
            _on_sidewalk(site, side)
        if site.block.median:
            _beside_highway(site, side)
        if side.bay > side.kerb:
            for start, end in site.block.bay_spans():
                _fill_bay(site, side, start, end)
    for plot in site.block.plots:
        if not site.block.median:
            _border(site, plot)
            _between(site, plot)
        {"park": _park, "wild": _park, "lot": _lot}.get(plot.use, _house)(site, plot)
    for side in site.block.sides:
        _backdrop(site, side)


# -- anywhere


def _strays(site: Site, plot: Plot) -> None:
    """Rarer things on a plot and on the sidewalk before it: by a wall, in groups, turned anyhow.

    What a thing is must not be read from where it stands.
    """
    rng, side = site.rng, plot.side
    low = side.walk if side.has_walk else side.edge + 0.3
    high = side.edge + (18.0 if plot.use in ("park", "wild") else plot.front - 0.1)
    count = site.style.stray_count * (0.4 + 0.6 * site.course.kind.people)
    for _ in range(int(rng.poisson(count))):
        mesh = make(rng, "stray")
        length, width = footprint(mesh)
        room = max(0.4 * length, 0.4)
        if high - low < 2 * room or plot.s1 - plot.s0 < 2 * room + 1.0:
            continue
        s, away = rng.uniform(plot.s0 + room, plot.s1 - room), rng.uniform(low + room, high - room)
        yaw = rng.uniform(0, 2 * np.pi)
        if site.happens(0.4):  # by the wall, or where the wall would be
            away, yaw = high - width / 2, float(rng.choice([0.0, np.pi]))
        if not site.claim(s, side.sign * away, room):
            continue
        for _ in range(1 + int(length < 2.3 and rng.poisson(0.7))):
            site.put(mesh, s, side.sign * away, yaw + rng.normal(0, 0.15))
            s += rng.uniform(0.45, 0.9)


def _side_street(site: Site) -> None:
    """What drives and stands on the side street, across all else."""
    rng, crossing = site.rng, site.block.crossing
    for side in site.block.sides if crossing is not None else ():
        at = side.edge + rng.uniform(1.0, 8.0)
        while crossing is not None and at < 40.0:
            mesh = make(rng, "crossing")
            length, width = footprint(mesh)
            s = crossing.s + rng.choice([-1, 1]) * (crossing.half - width / 2) * rng.uniform(0.2, 1)
            yaw = np.pi / 2 * rng.choice([-1, 1]) + rng.normal(0, 0.05)
            site.put(mesh, s, side.sign * (at + length / 2), yaw)
            at += length + rng.uniform(0.8, 10.0)


# -- on the sidewalk


def _posts(site: Site, side: Side) -> None:
    rng, spacing = site.rng, site.style.lamp_spacing / max(site.course.kind.people, 0.3)
    reach = max(side.edge - side.bay - 1.0, 0.45) if side.has_walk else 2.5
    away = side.bay + min(rng.uniform(0.4, 1.0), reach)
    d = side.sign * (side.edge + 0.5 if site.happens(0.3) else away)
    start = site.block.s0 + spacing * rng.uniform(0.1, 0.6)
    for s in np.arange(start, site.block.s1, spacing).tolist():
        if site.claim(s, d, 0.4):
            site.put("lamp", s, d, side.to_road)
    for _ in range(int(rng.poisson(site.style.sign_count / 2)) + 1):
        d = side.sign * (side.bay + rng.uniform(0.4, reach))
        s = site.find(d, 0.5)
        if s is not None:
            site.put("sign", s, d, side.along_traffic + rng.normal(0, 0.15))


def _street_trees(site: Site, side: Side) -> None:
    if site.happens(site.style.tree_share * site.course.kind.trees):
        away = 0.55 if side.walk <= side.bay else max((side.walk - side.bay) / 2, 0.8)
        start = site.block.s0 + site.rng.uniform(1, 5)
        for s in np.arange(start, site.block.s1 - 1, site.style.tree_spacing).tolist():
            fork, height = site.rng.uniform((2.3, 5.0), (3.4, 11.0)).tolist()
            tree = make(site.rng, "tree", fork=fork, height=height)  # cut free for the traffic
            site.grow(tree, s, side.sign * (side.bay + away), room=0.6)


def _low_plants(site: Site, side: Side) -> None:
    """Tall grass and shrubs on the strip along the road, or where the land begins."""
    rng, strip = site.rng, side.walk - side.bay
    low, high = (0.35, strip - 0.3) if side.has_walk else (0.8, strip + 3.0)
    for _ in range(int(rng.poisson(6.0)) if high > low and site.happens(0.75) else 0):
        s, d = rng.uniform(site.block.s0 + 1, site.block.s1 - 1), side.bay + rng.uniform(low, high)
        site.grow("shrub", s, side.sign * d, room=0.5)


def _on_sidewalk(site: Site, side: Side) -> None:
    rng, inner, people = site.rng, max(side.bay, side.walk) + 0.55, site.course.kind.people
    if site.happens(0.75 * site.style.presence * people):  # cycles side by side, across its edge
        count = max(int(rng.poisson(site.style.bicycle_count)), 2)
        s = site.find(side.sign * (inner + 0.3), 0.35 * count + 0.3)
        for at in [] if s is None else s + (np.arange(count) - (count - 1) / 2) * 0.7:
            yaw = side.to_road + rng.normal(0, 0.25)
            site.put("bicycle", at, side.sign * (inner + 0.35), yaw)


# -- in parking bays


def _fill_bay(site: Site, side: Side, start: float, end: float) -> None:
    rng, at = site.rng, start + site.rng.uniform(0.2, 1.2)
    # large ones park on the far side: beside the sensor one alone would fill a third of a scan
    large = ["truck", "other_vehicle"] * 2 if side.sign > 0 else []
    rare = ["motorcycle", "motorcycle", "bicycle", *large]
    while at < end - 2.0:
        if not site.happens(site.style.parked_share):
            at += rng.uniform(2.0, 5.0)
            continue
        kind = str(rng.choice(rare)) if site.happens(0.25 * site.style.presence) else "car"
        mesh = make(rng, kind)
        length, width = footprint(mesh)
        turn = 0.0
        if side.deep:
            length, width, turn = width, length, float(rng.choice([-1, 1])) * np.pi / 2
        if at + length > end:
            at += 2.0
            continue
        # wide vehicles keep to the kerb and stand into the road with the rest of their width
        middle = side.bay - max((side.bay - side.kerb) / 2, width / 2 - 0.05)
        yaw = side.along_traffic + turn + rng.normal(0, 0.02)
        site.put(mesh, at + length / 2, side.sign * middle, yaw)
        at += length + rng.uniform(0.6, 1.6)


# -- on the plots


def _border(site: Site, plot: Plot) -> None:
    """Put a fence or a hedge along the sidewalk, in pieces that follow the ground."""
    rng, style = site.rng, site.style
    if plot.use == "forecourt" or not site.happens(style.fence_share + style.hedge_share):
        return
    fenced = site.happens(style.fence_share / (style.fence_share + style.hedge_share))
    gate = rng.uniform(plot.s0 + 3.0, plot.s1 - 4.5)
    start, stop = plot.drive or (gate, gate + 1.3)
    if plot.use == "lot":
        start, stop = plot.s0 + 2.0, plot.s0 + 7.0
    rural = 0.0 if site.course.scene == "town" else 6.0
    away = plot.side.edge + 0.2 + (rng.uniform(0.0, rural) if plot.use in ("park", "wild") else 0.0)
    behind = fenced and site.happens(0.5)
    gap, state = rng.uniform(0.3, 1.0), rng.bit_generator.state
    for a, b in ((plot.s0 + 0.15, start), (stop, plot.s1 - 0.15)):
        ends = np.linspace(a, b, max(int((b - a) / 4), 1) + 1).tolist() if b - a > 0.6 else []
        for start, stop in pairwise(ends):
            rng.bit_generator.state = state  # the same style and height all along
            piece = make(rng, "fence" if fenced else "hedge", length=stop - start)
            site.put_along(piece, plot.side, start, stop, away)
            if behind:
                hedge = make(rng, "hedge", length=stop - start)
                site.put_along(hedge, plot.side, start, stop, away + gap)


def _between(site: Site, plot: Plot) -> None:
    """A fence or a hedge between two plots, away from the road."""
    if plot.use in ("forecourt", "lot") or not site.happens(0.35):
        return
    rng, side = site.rng, plot.side
    kind = "fence" if site.happens(0.65) else "hedge"
    s = plot.s0 + 0.3 if site.happens(0.5) else plot.s1 - 0.3
    ends = np.arange(side.edge + 0.4, side.edge + rng.uniform(6.0, 18.0), 3.0)
    state = rng.bit_generator.state
    for start in ends.tolist():
        rng.bit_generator.state = state
        d = side.sign * (start + 1.5)
        site.put(make(rng, kind, length=3.0), s, d, np.pi / 2)


def _driveway(site: Site, plot: Plot, start: float, stop: float) -> None:
    rng, side = site.rng, plot.side
    for away in np.arange(side.edge + 1.2, side.edge + plot.front, 1.5).tolist():
        site.claim((start + stop) / 2, side.sign * away, (stop - start) / 2)
    if plot.front > 5.6 and site.happens(0.7):
        mesh = make(rng, "other_vehicle" if site.happens(0.12) else "car")
        length, _ = footprint(mesh)
        away = side.edge + 0.4 + length / 2 + rng.uniform(0.0, max(plot.front - length - 1.0, 0.1))
        yaw = side.to_road + float(rng.choice([0.0, np.pi])) + rng.normal(0, 0.04)
        if length < plot.front:
            site.put(mesh, (start + stop) / 2, side.sign * away, yaw)


def _lot(site: Site, plot: Plot) -> None:
    """A parking lot: two rows of vehicles, before trees and bushes."""
    rng, side = site.rng, plot.side
    for away in (3.2, LOT - 3.0):
        for s in np.arange(plot.s0 + (8.5 if away < 4 else 2.2), plot.s1 - 2.0, 2.7).tolist():
            if site.happens(site.style.parked_share):
                kind = "other_vehicle" if site.happens(0.05) else "car"
                yaw = side.to_road + float(rng.choice([0.0, np.pi])) + rng.normal(0, 0.03)
                site.put(kind, s, side.sign * (side.edge + away), yaw)
    for s in np.arange(plot.s0 + 1, plot.s1 - 1, 2.5).tolist():
        kind = "bush" if site.happens(0.7) else "tree"
        site.grow(kind, s, side.sign * (side.edge + LOT + rng.uniform(1.0, 3.0)), room=0.8)


def _beside_highway(site: Site, side: Side) -> None:
    """Guard rails on both sides of the carriageway, noise barriers, and boards."""
    rng, block = site.rng, site.block
    ends = np.linspace(block.s0, block.s1, 11).tolist()
    walled, high, railed = site.happens(0.2), rng.uniform(1.5, 4.5), site.happens(0.75)
    for start, stop in pairwise(ends):
        if railed:
            rail = make(rng, "rail", length=stop - start)
            site.put_along(rail, side, start, stop, side.kerb + 0.8)
        rail = make(rng, "rail", length=stop - start)
        site.put_along(rail, side, start, stop, block.median - 0.5)
        if walled:
            wall = make(rng, "barrier", length=stop - start, height=high)
            site.put_along(wall, side, start, stop, side.kerb + 4.5)
    if site.happens(0.5):
        s = rng.uniform(block.s0, block.s1)
        site.put("guide", s, side.sign * (side.kerb + 2.0), side.along_traffic)


def _house(site: Site, plot: Plot) -> None:
    rng, side = site.rng, plot.side
    gaps = rng.uniform(0.8, 3.0, 2) if plot.use == "house" and site.happens(0.6) else np.zeros(2)
    start, stop = plot.s0 + float(gaps[0]), plot.s1 - float(gaps[1])
    _put_house(site, side, start, stop, side.edge + plot.front, site.style.building_height)
    depth = plot.front - 1.6
    low = side.edge + 0.6
    for _ in range(int(rng.poisson(4.0)) if plot.use == "house" and depth > 0.3 else 0):
        d = side.sign * rng.uniform(low, low + depth)
        site.grow("shrub", rng.uniform(plot.s0 + 1, plot.s1 - 1), d, room=0.5)
    if plot.use == "house" and depth > 0.8:
        for _ in range(int(rng.poisson(site.style.bush_count / 2))):
            d = side.sign * (side.edge + 0.9 + depth * rng.random())
            site.grow("bush", rng.uniform(plot.s0 + 1, plot.s1 - 1), d, room=0.7)
        d = side.sign * (side.edge + 0.9 + depth / 2)
        site.grow("tree", rng.uniform(plot.s0 + 2, plot.s1 - 2), d, room=1.0)


def _put_house(
    site: Site, side: Side, start: float, stop: float, away: float, height: float
) -> None:
    depth = float(site.rng.uniform(8.0, 12.0))
    tall = float(np.clip(site.rng.normal(height, 1.5), 3.5, 16.0))
    mesh = make(site.rng, "house", w=stop - start, d=depth, h=tall)
    site.put_along(mesh, side, start, stop, away + depth / 2)


def _park(site: Site, plot: Plot) -> None:
    rng, side, style = site.rng, plot.side, site.style
    low, high = plot.s0 + 1, plot.s1 - 1
    open_land = site.course.scene != "town"
    near = 4.0 if site.block.median else 1.5
    for _ in range(int(rng.integers(0 if open_land else 3, 7))):
        d = side.sign * (side.edge + rng.uniform(near + 0.5, 18))
        site.grow("tree", rng.uniform(low, high), d, room=1.2)
    thicket = np.arange(low, high, 1.5).tolist() if site.happens(0.3 if open_land else 0.55) else []
    count = int(rng.poisson(style.bush_count * (0.4 if open_land else 0.8))) + 1
    for s in [*thicket, *rng.uniform(low, high, count).tolist()]:
        away = near + (rng.uniform(0.0, 2.0) if s in thicket else rng.uniform(-0.2, 14))
        kind = "shrub" if site.happens(0.35) else "bush"
        site.grow(kind, s, side.sign * (side.edge + away), room=0.6)


def _backdrop(site: Site, side: Side) -> None:
    rng, block = site.rng, site.block
    left_open = 0.15 if site.course.kind.is_built_up else 0.75
    for near, far, count in ((21.0, 35.0, 10), (52.0, 62.0, 8)):
        for _ in range(count):
            s, away = rng.uniform(block.s0 + 2, block.s1 - 2), rng.uniform(near, far)
            if not block.is_crossed(s, margin=4.0):
                site.put("tree", s, side.sign * (side.edge + away))
    start = block.s0 + rng.uniform(0.3, 3.0)
    while start < block.s1 - 6.0:
        width = min(rng.uniform(8.0, 16.0), block.s1 - 0.3 - start)
        if not block.is_crossed(start + width / 2, 2.6 + width / 2) and not site.happens(left_open):
            _put_house(site, side, start, start + width, side.edge + 38.0, rng.uniform(6, 13))
        start += width + rng.uniform(0.0, 4.0)
