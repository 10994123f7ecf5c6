"""Vehicles at rest: in parking bays, car parks and driveways."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.streets.layout import Plot, Side
from pcnn.simulate.streets.site import Site, footprint

# they park on the far side: beside the sensor one alone would fill a third of a scan
_LARGE = ("truck", "bus", "caravan")


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
            site.put(site.thing("car"), plot.driveway + 1.5, d, np.pi / 2)
    return ["truck" if kind == "truck" else "bus" for kind in wanted if kind in _LARGE]


def _rarer_kinds(site: Site) -> list[str]:
    """Draw the rarer vehicles that this block parks, in the order in which they arrive."""
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
