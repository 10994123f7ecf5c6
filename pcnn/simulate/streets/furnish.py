"""What stands along a street: on sidewalks, in parking bays, on the plots behind, and far away."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pcnn.simulate.streets.layout import Plot, Side
from pcnn.simulate.streets.site import Site, footprint, make


def furnish(site: Site) -> None:
    for side in site.block.sides:
        _posts(site, side)
        _street_trees(site, side)
        _on_sidewalk(site, side)
        if side.bay > side.kerb:
            for start, end in site.block.bay_spans():
                _fill_bay(site, side, start, end)
    for plot in site.block.plots:
        _border(site, plot)
        (_park if plot.use == "park" else _house)(site, plot)
    for side in site.block.sides:
        _backdrop(site, side)


# -- on the sidewalk


def _posts(site: Site, side: Side) -> None:
    rng, spacing, d = site.rng, site.style.lamp_spacing, side.sign * (side.bay + 0.4)
    start = site.block.s0 + spacing * rng.uniform(0.1, 0.6)
    for s in np.arange(start, site.block.s1, spacing).tolist():
        if site.claim(s, d, 0.4):
            site.put("lamp", s, d, side.to_road)
    for _ in range(int(rng.poisson(site.style.sign_count / 2)) + 1):
        s = site.find(d, 0.5)
        if s is not None:
            site.put("sign", s, d, side.along_traffic + rng.normal(0, 0.15))


def _street_trees(site: Site, side: Side) -> None:
    if site.happens(site.style.tree_share):
        start = site.block.s0 + site.rng.uniform(1, 5)
        for s in np.arange(start, site.block.s1 - 1, site.style.tree_spacing).tolist():
            site.grow("tree", s, side.sign * (side.bay + 0.55), room=0.6)


def _on_sidewalk(site: Site, side: Side) -> None:
    rng, inner = site.rng, side.bay + 0.55
    if site.happens(site.style.presence):  # cycles side by side, across the inner edge
        count = max(int(rng.poisson(site.style.bicycle_count)), 2)
        s = site.find(side.sign * (inner + 0.3), 0.35 * count + 0.3)
        for at in [] if s is None else s + (np.arange(count) - (count - 1) / 2) * 0.7:
            yaw = side.to_road + rng.normal(0, 0.25)
            site.put("bicycle", at, side.sign * (inner + 0.35), yaw)
    if site.happens(0.5 * site.style.presence):
        s = site.find(side.sign * inner, 1.0)
        if s is not None:
            yaw = side.along_traffic + rng.normal(0, 0.3)
            site.put("motorcycle", s, side.sign * inner, yaw)


# -- in parking bays


def _fill_bay(site: Site, side: Side, start: float, end: float) -> None:
    rng, at = site.rng, start + site.rng.uniform(0.2, 1.2)
    # large ones park on the far side: beside the sensor one alone would fill a third of a scan
    rare = ["motorcycle", "bicycle", *(["truck", "bus"] if side.sign > 0 else [])]
    while at < end - 2.0:
        if not site.happens(site.style.parked_share):
            at += rng.uniform(2.0, 5.0)
            continue
        kind = str(rng.choice(rare)) if site.happens(0.35 * site.style.presence) else "car"
        mesh = make(rng, kind)
        length, width = footprint(mesh)
        if at + length > end:
            at += 2.0
            continue
        # wide vehicles keep to the kerb and stand into the road with the rest of their width
        middle = side.bay - max((side.bay - side.kerb) / 2, width / 2 - 0.05)
        yaw = side.along_traffic + rng.normal(0, 0.02)
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
    state = rng.bit_generator.state
    for a, b in ((plot.s0 + 0.15, gate), (gate + 1.3, plot.s1 - 0.15)):
        ends = np.linspace(a, b, max(int((b - a) / 4), 1) + 1).tolist() if b - a > 0.6 else []
        for start, stop in pairwise(ends):
            rng.bit_generator.state = state  # the same style and height all along
            piece = make(rng, "fence" if fenced else "hedge", length=stop - start)
            site.put_along(piece, plot.side, start, stop, plot.side.edge + 0.2)


def _house(site: Site, plot: Plot) -> None:
    rng, side = site.rng, plot.side
    gaps = rng.uniform(0.8, 3.0, 2) if plot.use == "house" and site.happens(0.6) else np.zeros(2)
    start, stop = plot.s0 + float(gaps[0]), plot.s1 - float(gaps[1])
    _put_house(site, side, start, stop, side.edge + plot.front, site.style.building_height)
    depth = plot.front - 1.6
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
    for _ in range(int(rng.integers(3, 7))):
        d = side.sign * (side.edge + rng.uniform(1.5, 16))
        site.grow("tree", rng.uniform(low, high), d, room=1.2)
    thicket = np.arange(low, high, 1.5).tolist() if site.happens(0.8) else []
    for s in [*thicket, *rng.uniform(low, high, int(rng.poisson(style.bush_count)) + 1).tolist()]:
        away = rng.uniform(1.4, 3.5) if s in thicket else rng.uniform(1.2, 14)
        site.grow("bush", s, side.sign * (side.edge + away), room=0.6)


def _backdrop(site: Site, side: Side) -> None:
    rng, block = site.rng, site.block
    for near, far, count in ((21.0, 35.0, 10), (52.0, 62.0, 8)):
        for _ in range(count):
            s, away = rng.uniform(block.s0 + 2, block.s1 - 2), rng.uniform(near, far)
            if not block.is_crossed(s, margin=4.0):
                site.put("tree", s, side.sign * (side.edge + away))
    start = block.s0 + rng.uniform(0.3, 3.0)
    while start < block.s1 - 6.0:
        width = min(rng.uniform(8.0, 16.0), block.s1 - 0.3 - start)
        if not block.is_crossed(start + width / 2, 2.6 + width / 2) and not site.happens(0.15):
            _put_house(site, side, start, start + width, side.edge + 38.0, rng.uniform(6, 13))
        start += width + rng.uniform(0.0, 4.0)
