"""Furniture of sidewalks and traffic islands: lamps, signs, trees, cycles, people."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.streets.layout import Side
from pcnn.simulate.streets.site import Site
from pcnn.simulate.streets.trees import plant_street_trees


def furnish_roadside(site: Site) -> None:
    """Put everything that stands between the kerb and the plots of a block."""
    for side in site.block.sides:
        _lamps(site, side)
        _signs(site, side)
        plant_street_trees(site, side)
        _cycles(site, side)
        _standing_people(site, side)
        _bins_and_bollards(site, side)
    if site.block.island is not None:
        a, b = site.block.island
        site.put("low_sign", a + 0.6, 0.0)
        site.put("low_sign" if site.happens(0.5) else "sign", b - 0.6, 0.0, np.pi)
        if b - a > 6.5:
            site.put("bollard", (a + b) / 2, 0.0)


def _lamps(site: Site, side: Side) -> None:
    spacing, d = site.settings.lamp_spacing, side.sign * (side.bay + 0.4)
    start = site.block.s0 + spacing * site.rng.uniform(0.1, 0.6)
    for s in np.arange(start, site.block.s1, spacing).tolist():
        if site.claim(s, d, 0.4):
            site.put("lamp", s, d, side.to_road)


def _signs(site: Site, side: Side) -> None:
    d = side.sign * (side.bay + 0.5)
    for _ in range(int(site.rng.poisson(site.settings.sign_count / 2)) + 1):
        s = site.find(d, 0.5)
        if s is not None:
            site.put("sign", s, d, side.along_traffic + site.rng.normal(0, 0.15))


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


def _standing_people(site: Site, side: Side) -> None:
    for _ in range(int(site.rng.poisson(site.settings.person_count / 5))):
        d = side.sign * site.rng.uniform(side.verge + 0.5, side.edge - 0.4)
        s = site.find(d, 0.45)
        if s is not None:
            site.put(site.thing("stander"), s, d, site.rng.uniform(-np.pi, np.pi))


def _bins_and_bollards(site: Site, side: Side) -> None:
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
