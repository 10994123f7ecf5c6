"""Side streets: traffic lights, parked cars, borders, and riders that wait to turn."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.streets.layout import WIDTH, Crossing, Side
from pcnn.simulate.streets.plots import fence, house
from pcnn.simulate.streets.site import Site, footprint
from pcnn.simulate.streets.trees import hedge, plant


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
            _parked(site, crossing, side)
            for hand in (-1.0, 1.0):
                _border(site, crossing, side, hand)
            _waiting_rider(site, crossing, side)


def _lights(site: Site, crossing: Crossing, side: Side) -> None:
    """Stand a traffic light where a lane stops, and one beside the side street."""
    places = [(side.sign * (crossing.half + 1.0), side.kerb + 0.5, side.along_traffic)]
    if crossing.has_arm(side):
        places.append((-side.sign * (crossing.half + 0.5), side.edge + 0.6, side.to_road))
    for along, away, yaw in places:
        s, d = crossing.s + along, side.sign * away
        if site.claim(s, d, 0.3):
            site.put("traffic_light", s, d, yaw)


def _parked(site: Site, crossing: Crossing, side: Side) -> None:
    """Park cars along one kerb of a side street."""
    kerb = site.rng.choice((-1.0, 1.0))
    at = side.edge + site.rng.uniform(6.0, 10.0)
    while at < WIDTH - 8.0:
        if not site.happens(0.6 * site.settings.parked_share):
            at += 4.0
            continue
        mesh = site.thing("car")
        length, width = footprint(mesh)
        s = crossing.s + kerb * (crossing.half - width / 2 - 0.05)
        yaw = site.rng.choice((-1.0, 1.0)) * np.pi / 2
        site.put(mesh, s, side.sign * (at + length / 2), yaw)
        at += length + site.rng.uniform(0.8, 3.0)


def _border(site: Site, crossing: Crossing, side: Side, hand: float) -> None:
    """Line a side street with fences, hedges, trees and a house behind the corner plots."""
    rng, density = site.rng, site.settings.leaf_density
    edge = crossing.s + hand * (crossing.reach + 0.3)
    outwards = -side.to_road  # a thing drawn along +x runs away from the street
    at = side.edge + 14.0
    while at < WIDTH - 8.0:
        length, chance = rng.uniform(6.0, 12.0), rng.random()
        middle = side.sign * (at + length / 2)
        if chance < 0.7:
            what = fence(rng, length) if chance < 0.35 else hedge(rng, length, density)
            z = float(site.ground.height([edge], [middle])[0])
            site.place(what, edge, side.sign * at, z, outwards)
        if site.happens(0.35):
            plant(site, edge + hand * rng.uniform(1.0, 3.5), middle, conifers=0.3)
        at += length + rng.uniform(0.3, 2.5)
    if side.edge + 36.0 < WIDTH and site.happens(0.6):
        start, stop = (side.sign * (side.edge + away) for away in (20.0, 31.0))
        mesh, s = house(site, 11.0, 8.0), edge + hand * rng.uniform(3.0, 5.0)
        z = float(site.ground.height([s, s], [start, stop]).min())
        # its front, on the side of -y, looks at the side street
        outside = hand * side.sign < 0
        d, yaw = (start, outwards) if outside else (stop, -outwards)
        site.place(mesh, s, d, z, yaw)


def _waiting_rider(site: Site, crossing: Crossing, side: Side) -> None:
    """Let a rider wait to turn into the road."""
    if site.happens(0.7):
        # the right-hand lane as seen by a rider towards the road
        s = crossing.s - side.sign * site.rng.uniform(1.2, 2.0)
        d = side.sign * (side.kerb + site.rng.uniform(1.2, 2.5))
        kind = str(site.rng.choice(["bicyclist", "motorcyclist"]))
        site.put(site.thing(kind), s, d, side.to_road)
