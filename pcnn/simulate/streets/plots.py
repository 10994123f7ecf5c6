"""What stands behind the sidewalk: houses, fences, hedges, gardens, and the backdrop."""

from __future__ import annotations

import math

import numpy as np

from pcnn.simulate.mesh import Mesh
from pcnn.simulate.streets import furniture, plants
from pcnn.simulate.streets.buildings import building
from pcnn.simulate.streets.foliage import Plant
from pcnn.simulate.streets.layout import Plot, Side
from pcnn.simulate.streets.site import Site


def build_plots(site: Site) -> None:
    """Build the plots of a block and what is seen between them."""
    for plot in site.block.plots:
        if plot.use == "park":
            _park(site, plot)
        elif plot.use == "carpark":
            _border(site, plot, plot.side.edge + plot.front + 6.3, always=True)
        else:
            _house(site, plot)
    for side in site.block.sides:
        _backdrop(site, side)


def _put_along(
    site: Site, what: Mesh | Plant, s0: float, s1: float, distance: float, side: Side
) -> None:
    """Place what is drawn along +x from the origin so that its -y side faces the road."""
    s, yaw = (s0, 0.0) if side.sign > 0 else (s1, math.pi)
    # footings are deep enough for the whole length, so one height serves
    z = min(site.ground(a, side.sign * distance) for a in (s0 + 0.1, (s0 + s1) / 2, s1 - 0.1))
    site.place(what, s, side.sign * distance, z, yaw)


def _house(site: Site, plot: Plot) -> None:
    rng, side, settings = site.rng, plot.side, site.settings
    detached = plot.use == "house" and site.happens(0.6)
    gap0, gap1 = rng.uniform(0.8, 3.0, 2) if detached else (0.0, 0.0)
    if plot.driveway is not None:  # the driveway ends beside the house
        if plot.driveway - plot.s0 < 1.0:
            gap0 = max(gap0, 3.8)
        else:
            gap1 = max(gap1, 3.8)
    width = plot.s1 - plot.s0 - gap0 - gap1
    tall = float(np.clip(rng.normal(settings.building_height, 1.5), 3.5, 16.0))
    mesh = building(rng, float(width), float(rng.uniform(8.0, 12.0)), tall)
    distance = side.edge + plot.front
    _put_along(site, mesh, plot.s0 + gap0, plot.s1 - gap1, distance, side)
    if plot.use == "house":
        if plot.front > 1.2:
            _border(site, plot, side.edge + 0.2)
        _garden(site, plot, side.edge + 0.9, distance - 0.7)
        for start, gap in ((plot.s0, gap0), (plot.s1 - gap1, gap1)):
            if gap > 1.0 and plot.driveway is None and site.happens(0.6):
                fence = furniture.fence(rng, float(gap))
                _put_along(site, fence, start, start + gap, distance + 1.0, side)
    elif site.happens(0.5):
        s = float(rng.uniform(plot.s0 + 1, plot.s1 - 1))
        if site.claim(s, side.sign * (side.edge + 0.6), 0.5):
            site.put(furniture.bollard(rng), s, side.sign * (side.edge + 0.6))


def _border(site: Site, plot: Plot, distance: float, always: bool = False) -> None:
    """Draw fences or hedges along a plot, leaving its driveway and a gate open."""
    rng, side, settings = site.rng, plot.side, site.settings
    chance = rng.random()
    if chance < settings.fence_share or always:
        kind = "fence"
    elif chance < settings.fence_share + settings.hedge_share:
        kind = "hedge"
    else:
        return
    gate = float(rng.uniform(plot.s0 + 3.0, plot.s1 - 4.5))
    openings = [(gate, gate + 1.3)]
    if plot.driveway is not None:
        openings.append((plot.driveway - 0.1, plot.driveway + 3.1))
    at = plot.s0 + 0.15
    for a, b in [*sorted(openings), (plot.s1 - 0.15, plot.s1)]:
        # pieces of at most 5 m follow the ground
        pieces = max(math.ceil((a - at) / 5.0), 1)
        if a - at > 0.6:
            state = rng.bit_generator.state
            step = (a - at) / pieces
            for n in range(pieces):
                rng.bit_generator.state = state  # the same style and height all along
                piece: Mesh | Plant = (
                    furniture.fence(rng, step)
                    if kind == "fence"
                    else plants.hedge(rng, step, settings.leaf_density)
                )
                _put_along(site, piece, at + n * step, at + (n + 1) * step, distance, side)
        at = max(at, b)


def _plant(site: Site, plant: Plant, s: float, d: float) -> None:
    site.put(plant, s, d, float(site.rng.uniform(0, 2 * np.pi)), sink=0.05)


def _garden(site: Site, plot: Plot, near: float, far: float) -> None:
    """Bushes and small trees in a front garden."""
    rng, settings = site.rng, site.settings
    if far - near < 0.8:
        return
    for _ in range(int(rng.poisson(settings.bush_count / 2))):
        s, u = float(rng.uniform(plot.s0 + 1, plot.s1 - 1)), float(rng.uniform(near, far))
        on_drive = plot.driveway is not None and -1 < s - plot.driveway < 4
        if not on_drive and site.claim(s, plot.side.sign * u, 0.7):
            _plant(site, plants.bush(rng, settings.leaf_density), s, plot.side.sign * u)
    if far - near > 2.0 and plot.driveway is None and site.happens(0.5):
        s, d = float(rng.uniform(plot.s0 + 2, plot.s1 - 2)), plot.side.sign * (near + far) / 2
        if site.claim(s, d, 1.0):
            make = plants.conifer if site.happens(0.4) else plants.tree
            _plant(site, make(rng, settings.leaf_density), s, d)


def _park(site: Site, plot: Plot) -> None:
    """Grass with trees and bushes, behind a fence, a hedge or nothing."""
    rng, side, settings = site.rng, plot.side, site.settings
    _border(site, plot, side.edge + 0.2)
    if site.happens(settings.thicket_share):  # along the street
        for s in np.arange(plot.s0 + 1.0, plot.s1 - 1.0, float(rng.uniform(1.0, 1.8))):
            d = side.sign * (side.edge + float(rng.uniform(1.4, 3.5)))
            if site.claim(float(s), d, 0.4):
                _plant(site, plants.bush(rng, settings.leaf_density), float(s), d)
    for _ in range(int(rng.integers(3, 7))):
        s, u = float(rng.uniform(plot.s0 + 1, plot.s1 - 1)), side.edge + float(rng.uniform(1.5, 16))
        if site.claim(s, side.sign * u, 1.2):
            make = plants.conifer if site.happens(0.3) else plants.tree
            _plant(site, make(rng, settings.leaf_density), s, side.sign * u)
    for _ in range(int(rng.poisson(settings.bush_count)) + 1):
        s, u = float(rng.uniform(plot.s0 + 1, plot.s1 - 1)), side.edge + float(rng.uniform(1.2, 14))
        if site.claim(s, side.sign * u, 0.8):
            _plant(site, plants.bush(rng, settings.leaf_density), s, side.sign * u)


def _backdrop(site: Site, side: Side) -> None:
    """Trees, hedges and houses behind the first row, seen through the gaps."""
    rng, block, density = site.rng, site.block, site.settings.leaf_density
    arm = block.crossing if block.crossing and block.crossing.has_arm(side) else None

    def free(s: float, width: float = 2.0) -> bool:
        return arm is None or abs(s - arm.s) > arm.reach + width

    for near, far, low, high in ((21.0, 35.0, 5, 12), (52.0, 62.0, 4, 10)):
        for _ in range(int(rng.integers(low, high))):
            s = float(rng.uniform(block.s0 + 2, block.s1 - 2))
            d = side.sign * (side.edge + float(rng.uniform(near, far)))
            if free(s):
                make = plants.conifer if site.happens(0.4) else plants.tree
                _plant(site, make(rng, density), s, d)
    if arm is None and site.happens(0.6):
        start = block.s0 + float(rng.uniform(0, 10))
        hedge = plants.hedge(rng, 20.0, density)
        _put_along(site, hedge, start, start + 20.0, side.edge + 22.5, side)
    start = block.s0 + float(rng.uniform(0.3, 3.0))
    while start < block.s1 - 6.0:
        width = min(float(rng.uniform(8.0, 16.0)), block.s1 - 0.3 - start)
        if free(start + width / 2, width / 2) and not site.happens(0.15):
            mesh = building(rng, width, float(rng.uniform(8, 11)), float(rng.uniform(5, 14)))
            _put_along(site, mesh, start, start + width, side.edge + 38.0, side)
        start += width + float(rng.uniform(0.0, 4.0))
