"""Side streets: what stands, waits and arrives where they meet the street."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pcnn.simulate.mesh import Mesh
from pcnn.simulate.streets import furniture, plants
from pcnn.simulate.streets.buildings import building
from pcnn.simulate.streets.cycles import bicyclist, motorcyclist
from pcnn.simulate.streets.layout import WIDTH, Crossing, Side
from pcnn.simulate.streets.parked import make
from pcnn.simulate.streets.raw_ids import RawId
from pcnn.simulate.streets.site import Site
from pcnn.simulate.streets.vehicles import footprint


def furnish_junction(site: Site) -> None:
    """Put everything that belongs to the side street of a block, if it has one."""
    crossing = site.block.crossing
    if crossing is None:
        return
    lights = site.happens(0.4)
    for side in site.block.sides:
        if lights:
            _lights(site, crossing, side)
        if crossing.has_arm(side):
            parked_on = float(site.rng.choice((-1.0, 1.0)))
            _parked(site, crossing, side, parked_on)
            _borders(site, crossing, side)
            _rider(site, crossing, side)


def _lights(site: Site, crossing: Crossing, side: Side) -> None:
    """Stand a traffic light where a lane stops, and one beside the side street."""
    ahead = -1.0 if side.sign < 0 else 1.0
    s, d = crossing.s + ahead * (crossing.half + 1.0), side.sign * (side.kerb + 0.5)
    if site.claim(s, d, 0.3):
        site.put(furniture.traffic_light(site.rng), s, d, 0.0 if side.sign < 0 else math.pi)
    if crossing.has_arm(side):
        s, d = crossing.s - ahead * (crossing.half + 0.5), side.sign * (side.edge + 0.6)
        if site.claim(s, d, 0.3):
            yaw = math.copysign(math.pi / 2, -side.sign)
            site.put(furniture.traffic_light(site.rng), s, d, yaw)


def _parked(site: Site, crossing: Crossing, side: Side, on: float) -> None:
    """Park cars along one kerb of a side street."""
    at = side.edge + float(site.rng.uniform(6.0, 10.0))
    while at < WIDTH - 8.0:
        if not site.happens(0.6 * site.settings.parked_share):
            at += 4.0
            continue
        mesh, raw_id = make(site, "car")
        length, width = footprint(mesh)
        yaw = math.copysign(math.pi / 2, float(site.rng.choice((-1.0, 1.0))))
        s = crossing.s + on * (crossing.half - float(width) / 2 - 0.05)
        site.put_thing(mesh, raw_id, s, side.sign * (at + float(length) / 2), yaw)
        at += float(length) + float(site.rng.uniform(0.8, 3.0))


def _borders(site: Site, crossing: Crossing, side: Side) -> None:
    """Line a side street with fences, hedges, trees and houses behind the corner plots."""
    rng, density = site.rng, site.settings.leaf_density
    for hand in (-1.0, 1.0):
        edge = crossing.s + hand * (crossing.reach + 0.3)
        at = side.edge + 14.0
        while at < WIDTH - 8.0:
            length = float(rng.uniform(6.0, 12.0))
            chance = rng.random()
            z = site.ground(edge, side.sign * (at + length / 2))
            # drawn along +x, they run outwards from the street
            yaw = math.copysign(math.pi / 2, side.sign)
            if chance < 0.35:
                site.place(furniture.fence(rng, length), edge, side.sign * at, z, yaw)
            elif chance < 0.7:
                site.place(plants.hedge(rng, length, density), edge, side.sign * at, z, yaw)
            if site.happens(0.35):
                d = side.sign * (at + length / 2)
                plant = plants.conifer if site.happens(0.3) else plants.tree
                s = edge + hand * float(rng.uniform(1.0, 3.5))
                site.put(plant(rng, density), s, d, float(rng.uniform(0, 2 * np.pi)), sink=0.05)
            at += length + float(rng.uniform(0.3, 2.5))
        # one house a side, seen along the side street
        if side.edge + 24.0 + 12.0 < WIDTH and site.happens(0.6):
            width, start = 11.0, side.edge + 20.0
            tall = float(np.clip(rng.normal(site.settings.building_height, 1.5), 3.5, 16.0))
            mesh = building(rng, width, 8.0, tall)
            s = edge + hand * float(rng.uniform(3.0, 5.0))
            z = min(site.ground(s, side.sign * (start + x)) for x in (0.0, width))
            # its front, on the side of -y, looks at the side street
            if hand * side.sign < 0:
                site.place(mesh, s, side.sign * start, z, math.copysign(math.pi / 2, side.sign))
            else:
                end = side.sign * (start + width)
                site.place(mesh, s, end, z, -math.copysign(math.pi / 2, side.sign))


def _rider(site: Site, crossing: Crossing, side: Side) -> None:
    """Let a rider wait to turn into the road."""
    riders: list[tuple[Callable[[np.random.Generator], Mesh], RawId]] = [
        (bicyclist, RawId.BICYCLIST), (motorcyclist, RawId.MOTORCYCLIST),
    ]  # fmt: skip
    if not site.happens(0.7):
        return
    create, raw_id = riders[int(site.rng.integers(2))]
    # the right-hand lane as seen by someone who rides towards the road
    s = crossing.s - side.sign * float(site.rng.uniform(1.2, 2.0))
    d = side.sign * (side.kerb + float(site.rng.uniform(1.2, 2.5)))
    site.put_thing(create(site.rng), raw_id, s, d, math.copysign(math.pi / 2, -side.sign))
