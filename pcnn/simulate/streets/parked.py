"""Vehicles at rest: in parking bays, car parks and driveways."""

from __future__ import annotations

import math

from pcnn.simulate.mesh import Mesh
from pcnn.simulate.streets import vehicles
from pcnn.simulate.streets.cycles import bicycle, motorcycle
from pcnn.simulate.streets.layout import Plot, Side
from pcnn.simulate.streets.raw_ids import RawId
from pcnn.simulate.streets.site import Site

# they park on the far side: beside the sensor one alone would fill a third of a scan
_LARGE = ("truck", "bus", "caravan")


def make(site: Site, kind: str) -> tuple[Mesh, RawId]:
    """Make a vehicle of the named kind and its raw id at rest."""
    rng = site.rng
    if kind == "truck":
        return vehicles.truck(rng), RawId.TRUCK
    if kind == "bus":
        return vehicles.bus(rng), RawId.BUS
    if kind == "caravan":
        return vehicles.caravan(rng), RawId.OTHER_VEHICLE
    if kind == "motorcycle":
        return motorcycle(rng), RawId.MOTORCYCLE
    return vehicles.car(rng), RawId.CAR


def park_vehicles(site: Site) -> list[str]:
    """Fill the parking bays, car parks and driveways of a block.

    Returns:
        The large vehicles that found no place: they are on the road.
    """
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
            site.put_thing(*make(site, "car"), plot.driveway + 1.5, d, math.pi / 2)
    return ["truck" if kind == "truck" else "bus" for kind in wanted if kind in _LARGE]


def _rarer_kinds(site: Site) -> list[str]:
    """Draw which rarer vehicles this block parks, in the order in which they arrive."""
    large = "bus" if site.happens(0.35) else "caravan"
    kinds = ["truck", large, "motorcycle", "motorcycle", "bicycles", "bicycles"]
    kinds = [kind for kind in kinds if site.happens(site.settings.presence)]
    return [str(kind) for kind in site.rng.permutation(kinds)]


def _fill_bay(site: Site, side: Side, start: float, end: float, wanted: list[str]) -> None:
    rng = site.rng
    forward = 0.0 if side.sign < 0 else math.pi
    at = start + float(rng.uniform(0.2, 1.2))
    while at < end - 2.0:
        if not site.happens(site.settings.parked_share):
            at += float(rng.uniform(2.0, 5.0))
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
        mesh, raw_id = make(site, kind)
        length, width = vehicles.footprint(mesh)
        if at + length > end:
            if kind == "car":
                return
            # too long for what is left: a shorter one may still fit
            wanted.insert(0, kind)
            at += 1.5
            continue
        # wide vehicles keep to the kerb, and stand into the road with what does not fit
        middle = side.bay - max((side.bay - side.kerb) / 2, width / 2 - 0.05)
        yaw = forward + float(rng.normal(0, 0.02))
        site.put_thing(mesh, raw_id, at + float(length) / 2, side.sign * middle, yaw)
        at += float(length) + float(rng.uniform(0.6, 1.6))


def _cycle_stand(site: Site, side: Side, at: float, end: float) -> float:
    """Stand bicycles side by side across the bay; return where they end."""
    middle = side.sign * (side.kerb + side.bay) / 2
    for _ in range(max(int(site.rng.poisson(site.settings.bicycle_count)), 2) + 1):
        if at > end - 0.5:
            break
        yaw = math.copysign(math.pi / 2, side.sign) + float(site.rng.normal(0, 0.15))
        site.put_thing(bicycle(site.rng), RawId.BICYCLE, at + 0.3, middle, yaw)
        at += float(site.rng.uniform(0.55, 0.9))
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
        mesh, raw_id = make(site, kind)
        length = float(vehicles.footprint(mesh)[0])
        at += 0.3 if kind != "car" else 0.0
        yaw = math.copysign(math.pi / 2, float(site.rng.uniform(-1, 1)))
        site.put_thing(mesh, raw_id, at, plot.side.sign * (plot.side.edge + 0.8 + length / 2), yaw)
        at += 2.7 if kind == "car" else 3.2
