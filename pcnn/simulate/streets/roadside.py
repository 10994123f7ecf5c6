"""Things that stand along a street: on sidewalks and islands, at side streets, in parking bays."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.streets.layout import WIDTH, Crossing, Plot, Side
from pcnn.simulate.streets.plants import hedge
from pcnn.simulate.streets.plots import fence, house
from pcnn.simulate.streets.site import Site, footprint


def furnish_roadside(site: Site) -> None:
    for side in site.block.sides:
        _poles(site, side)
        _street_trees(site, side)
        _cycles(site, side)
        _on_sidewalk(site, side)
    if site.block.island is not None:
        a, b = site.block.island
        site.put("low_sign", a + 0.6, 0.0)
        site.put("low_sign" if site.happens(0.5) else "sign", b - 0.6, 0.0, np.pi)
        if b - a > 6.5:
            site.put("bollard", (a + b) / 2, 0.0)


def _poles(site: Site, side: Side) -> None:
    spacing, d = site.settings.lamp_spacing, side.sign * (side.bay + 0.4)
    start = site.block.s0 + spacing * site.rng.uniform(0.1, 0.6)
    for s in np.arange(start, site.block.s1, spacing).tolist():
        if site.claim(s, d, 0.4):
            site.put("lamp", s, d, side.to_road)
    d = side.sign * (side.bay + 0.5)
    for _ in range(int(site.rng.poisson(site.settings.sign_count / 2)) + 1):
        s = site.find(d, 0.5)
        if s is not None:
            site.put("sign", s, d, side.along_traffic + site.rng.normal(0, 0.15))


def _street_trees(site: Site, side: Side) -> None:
    on_verge = side.verge > side.bay
    if not site.happens(site.settings.tree_share * (1.0 if on_verge else 0.6)):
        return
    d = side.sign * ((side.bay + side.verge) / 2 if on_verge else side.bay + 0.55)
    spacing = site.settings.tree_spacing * (1.0 if on_verge else 1.4)
    start = site.block.s0 + site.rng.uniform(1, 5)
    for s in np.arange(start, site.block.s1 - 1, spacing).tolist():
        site.plant(s, d, room=0.6)
        if on_verge and site.happens(0.35):
            site.plant_bush(s + spacing * 0.5, d, room=0.8, scale=0.75)


def _cycles(site: Site, side: Side) -> None:
    rng, inner = site.rng, side.verge + 0.55
    if site.happens(site.settings.presence):
        # a stand: cycles side by side, across the sidewalk's inner edge
        count = max(int(rng.poisson(site.settings.bicycle_count)), 2)
        s = site.find(side.sign * (inner + 0.3), 0.35 * count + 0.3)
        if s is not None:
            for n in range(count):
                at = s + (n - (count - 1) / 2) * 0.7
                yaw = side.to_road + rng.normal(0, 0.25)
                site.put(site.thing("bicycle"), at, side.sign * (inner + 0.35), yaw)
    if site.happens(0.5 * site.settings.presence):
        for _ in range(int(rng.integers(1, 3))):
            s = site.find(side.sign * inner, 1.0)
            if s is not None:
                yaw = side.along_traffic + rng.normal(0, 0.3)
                site.put(site.thing("motorcycle"), s, side.sign * inner, yaw)


def _on_sidewalk(site: Site, side: Side) -> None:
    for _ in range(int(site.rng.poisson(site.settings.person_count / 5))):
        d = side.sign * site.rng.uniform(side.verge + 0.5, side.edge - 0.4)
        s = site.find(d, 0.45)
        if s is not None:
            site.put(site.thing("stander"), s, d, site.rng.uniform(-np.pi, np.pi))
    if side.edge - side.verge > 2.4 and site.happens(0.15):
        s = site.find(side.sign * (side.edge - 0.8), 2.3)
        if s is not None:
            site.put("shelter", s, side.sign * (side.edge - 0.9), side.to_road)
    d = side.sign * (side.edge - 0.35)
    for _ in range(int(site.rng.poisson(1.0))):
        s = site.find(d, 0.5)
        if s is not None:
            site.put("bin", s, d)
    if side.bay == side.kerb and site.happens(0.4):
        start = site.rng.uniform(site.block.s0, site.block.s1 - 10)
        d = side.sign * (side.kerb + 0.3)
        for s in (start + 1.5 * np.arange(6)).tolist():
            if site.claim(s, d, 0.2):
                site.put("bollard", s, d)


def furnish_junction(site: Site) -> None:
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
    places = [(side.sign * (crossing.half + 1.0), side.kerb + 0.5, side.along_traffic)]
    if crossing.has_arm(side):
        places.append((-side.sign * (crossing.half + 0.5), side.edge + 0.6, side.to_road))
    for along, away, yaw in places:
        s, d = crossing.s + along, side.sign * away
        if site.claim(s, d, 0.3):
            site.put("traffic_light", s, d, yaw)


def _parked(site: Site, crossing: Crossing, side: Side) -> None:
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
            site.plant(edge + hand * rng.uniform(1.0, 3.5), middle, conifers=0.3)
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
    if site.happens(0.7):
        # the right-hand lane as seen by a rider towards the road
        s = crossing.s - side.sign * site.rng.uniform(1.2, 2.0)
        d = side.sign * (side.kerb + site.rng.uniform(1.2, 2.5))
        kind = str(site.rng.choice(["bicyclist", "motorcyclist"]))
        site.put(site.thing(kind), s, d, side.to_road)


# they park on the far side: beside the sensor one alone would fill a third of a scan
_LARGE = ("truck", "bus", "caravan")


def park_vehicles(site: Site) -> list[str]:
    wanted = _rarer_kinds(site)
    for side in site.block.sides:
        if side.bay > side.kerb:
            for a, b in site.block.bay_spans():
                _fill_bay(site, side, a, b, wanted)
    for plot in site.block.plots:
        if plot.use == "carpark":
            _fill_car_park(site, plot)
        elif plot.driveway is not None and plot.front > 4.8 and site.happens(0.6):
            d = plot.side.sign * (plot.side.edge + plot.front / 2 + 0.3)
            site.put(site.thing("car"), plot.driveway + 1.5, d, np.pi / 2)
    return ["truck" if kind == "truck" else "bus" for kind in wanted if kind in _LARGE]


def _rarer_kinds(site: Site) -> list[str]:
    large = "bus" if site.happens(0.35) else "caravan"
    kinds = ["truck", large, "motorcycle", "motorcycle", "bicycles", "bicycles"]
    kinds = [kind for kind in kinds if site.happens(site.settings.presence)]
    return [str(kind) for kind in site.rng.permutation(kinds)]


def _fill_bay(site: Site, side: Side, start: float, end: float, wanted: list[str]) -> None:
    rng = site.rng
    at = start + rng.uniform(0.2, 1.2)
    while at < end - 2.0:
        if not site.happens(site.settings.parked_share):
            at += rng.uniform(2.0, 5.0)
            continue
        # two places in three go to a rarer vehicle while there are any
        choice = [kind for kind in wanted if side.sign > 0 or kind not in _LARGE]
        kind = "car"
        if choice and site.happens(0.65):
            kind = choice[-1]
            wanted.remove(kind)
        if kind == "bicycles":
            at = _cycle_stand(site, side, at, end)
            continue
        mesh = site.thing(kind)
        length, width = footprint(mesh)
        if at + length > end:
            if kind == "car":
                return
            # too long for the rest of the bay: a shorter one may still fit
            wanted.insert(0, kind)
            at += 1.5
            continue
        # wide vehicles keep to the kerb and stand into the road with the rest of their width
        middle = side.bay - max((side.bay - side.kerb) / 2, width / 2 - 0.05)
        yaw = side.along_traffic + rng.normal(0, 0.02)
        site.put(mesh, at + length / 2, side.sign * middle, yaw)
        at += length + rng.uniform(0.6, 1.6)


def _cycle_stand(site: Site, side: Side, at: float, end: float) -> float:
    """Stand bicycles side by side across the bay; return where they end."""
    middle = side.sign * (side.kerb + side.bay) / 2
    for _ in range(max(int(site.rng.poisson(site.settings.bicycle_count)), 2) + 1):
        if at > end - 0.5:
            break
        yaw = -side.to_road + site.rng.normal(0, 0.15)
        site.put(site.thing("bicycle"), at + 0.3, middle, yaw)
        at += site.rng.uniform(0.55, 0.9)
    return at + 0.6


def _fill_car_park(site: Site, plot: Plot) -> None:
    at = plot.s0 + 1.6
    special = "caravan" if site.happens(0.6) else "truck"
    while at < plot.s1 - 1.4:
        kind = "car"
        if special and site.happens(0.25):
            kind, special = special, ""
        if kind == "car" and not site.happens(0.7 * site.settings.parked_share):
            at += 2.6
            continue
        mesh = site.thing(kind)
        at += 0.3 if kind != "car" else 0.0
        yaw = np.copysign(np.pi / 2, site.rng.uniform(-1, 1))
        d = plot.side.sign * (plot.side.edge + 0.8 + footprint(mesh)[0] / 2)
        site.put(mesh, at, d, yaw)
        at += 2.7 if kind == "car" else 3.2
