"""What stands on the sidewalk and on traffic islands: lamps, signs, trees, cycles, people."""

from __future__ import annotations

import math

import numpy as np

from pcnn.simulate.streets import furniture, plants
from pcnn.simulate.streets.cycles import bicycle, motorcycle
from pcnn.simulate.streets.layout import Side
from pcnn.simulate.streets.people import person
from pcnn.simulate.streets.raw_ids import RawId
from pcnn.simulate.streets.site import Site


def furnish_roadside(site: Site) -> None:
    """Put everything that stands between the kerb and the plots of a block."""
    for side in site.block.sides:
        _lamps(site, side)
        _signs(site, side)
        _trees(site, side)
        _cycles(site, side)
        _standing_people(site, side)
        _clutter(site, side)
    _island(site)


def _try(site: Site, side: Side, distance: float, radius: float) -> float | None:
    """Look for a free place at a distance from the centre line; return its s."""
    for _ in range(8):
        s = float(site.rng.uniform(site.block.s0 + 1.0, site.block.s1 - 1.0))
        if site.claim(s, side.sign * distance, radius):
            return s
    return None


def _facing_traffic(side: Side) -> float:
    return 0.0 if side.sign < 0 else math.pi


def _towards_road(side: Side) -> float:
    return math.copysign(math.pi / 2, -side.sign)


def _lamps(site: Site, side: Side) -> None:
    spacing = site.settings.lamp_spacing
    for s in np.arange(
        site.block.s0 + spacing * float(site.rng.uniform(0.1, 0.6)), site.block.s1, spacing
    ):
        if site.claim(float(s), side.sign * (side.bay + 0.4), 0.4):
            mesh = furniture.lamp(site.rng)
            site.put(mesh, float(s), side.sign * (side.bay + 0.4), _towards_road(side))


def _signs(site: Site, side: Side) -> None:
    for _ in range(int(site.rng.poisson(site.settings.sign_count / 2)) + 1):
        s = _try(site, side, side.bay + 0.5, 0.5)
        if s is not None:
            yaw = _facing_traffic(side) + float(site.rng.normal(0, 0.15))
            site.put(furniture.sign(site.rng), s, side.sign * (side.bay + 0.5), yaw)


def _trees(site: Site, side: Side) -> None:
    on_verge = side.verge > side.bay
    if not site.happens(site.settings.tree_share * (1.0 if on_verge else 0.6)):
        return
    distance = (side.bay + side.verge) / 2 if on_verge else side.bay + 0.55
    spacing = site.settings.tree_spacing * (1.0 if on_verge else 1.4)
    for s in np.arange(site.block.s0 + float(site.rng.uniform(1, 5)), site.block.s1 - 1, spacing):
        if site.claim(float(s), side.sign * distance, 0.6):
            turn = float(site.rng.uniform(0, 2 * np.pi))
            mesh = plants.tree(site.rng, site.settings.leaf_density)
            site.put(mesh, float(s), side.sign * distance, turn)
        if on_verge and site.happens(0.35):  # a planted bed between two trees
            bed = float(s) + spacing * 0.5
            if site.claim(bed, side.sign * distance, 0.8):
                mesh = plants.bush(site.rng, site.settings.leaf_density).scaled(0.75)
                site.put(mesh, bed, side.sign * distance, sink=0.05)


def _cycles(site: Site, side: Side) -> None:
    rng, inner = site.rng, side.verge + 0.55
    if site.happens(site.settings.presence):
        # a stand: cycles side by side, across the sidewalk's inner edge
        count = max(int(rng.poisson(site.settings.bicycle_count)), 2)
        s = _try(site, side, inner + 0.3, 0.35 * count + 0.3)
        if s is not None:
            for n in range(count):
                yaw = _towards_road(side) + float(rng.normal(0, 0.25))
                at = s + (n - (count - 1) / 2) * 0.7
                site.put_thing(bicycle(rng), RawId.BICYCLE, at, side.sign * (inner + 0.35), yaw)
    if site.happens(0.5 * site.settings.presence):
        for _ in range(int(rng.integers(1, 3))):
            s = _try(site, side, inner, 1.0)
            if s is not None:
                yaw = _facing_traffic(side) + float(rng.normal(0, 0.3))
                site.put_thing(motorcycle(rng), RawId.MOTORCYCLE, s, side.sign * inner, yaw)


def _standing_people(site: Site, side: Side) -> None:
    rng = site.rng
    for _ in range(int(rng.poisson(site.settings.person_count / 5))):
        distance = float(rng.uniform(side.verge + 0.5, side.edge - 0.4))
        s = _try(site, side, distance, 0.45)
        if s is not None:
            yaw = float(rng.uniform(-np.pi, np.pi))
            site.put_thing(person(rng, False), RawId.PERSON, s, side.sign * distance, yaw)


def _clutter(site: Site, side: Side) -> None:
    if side.edge - side.verge > 2.4 and site.happens(0.15):
        s = _try(site, side, side.edge - 0.8, 2.3)
        if s is not None:
            site.put(furniture.shelter(), s, side.sign * (side.edge - 0.9), _towards_road(side))
    for _ in range(int(site.rng.poisson(1.0))):
        s = _try(site, side, side.edge - 0.35, 0.5)
        if s is not None:
            site.put(furniture.bin_or_box(site.rng), s, side.sign * (side.edge - 0.35))
    if side.bay == side.kerb and site.happens(0.4):
        start = float(site.rng.uniform(site.block.s0, site.block.s1 - 10))
        for n in range(6):
            if site.claim(start + 1.5 * n, side.sign * (side.kerb + 0.3), 0.2):
                mesh = furniture.bollard(site.rng)
                site.put(mesh, start + 1.5 * n, side.sign * (side.kerb + 0.3))


def _island(site: Site) -> None:
    if site.block.island is None:
        return
    a, b = site.block.island
    site.put(furniture.sign(site.rng, low=True), a + 0.6, 0.0, 0.0)
    site.put(furniture.sign(site.rng, low=site.happens(0.5)), b - 0.6, 0.0, math.pi)
    if b - a > 6.5:
        site.put(furniture.bollard(site.rng), (a + b) / 2, 0.0)
