"""Floor, ceiling, walls with their doors and windows, columns, beams and lights."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np

from pcnn.simulate.mesh import Floats
from pcnn.simulate.rooms.paint import Paint
from pcnn.simulate.rooms.site import WALL_YAWS, Site
from pcnn.simulate.shapes import block, box, quads, tube

Opening = tuple[float, float, float, float]  # along from, along to, low, high [m]
Openings = dict[int, list[Opening]]  # by wall


def build_shell(site: Site) -> Floats:
    """Add everything that belongs to the building; return the places of the lights [L, 3]."""
    s, palette = site.settings, site.palette
    floor = palette.paints[palette.draw("muted")]
    floor = replace(floor, texture="tiles" if site.happens(0.5) else "plain", contrast=0.12)
    ceiling = Paint((0.9, 0.9, 0.88), "tiles" if site.happens(0.5) else "plain", 0.05, 0.6)
    for z, paint, label in ((0.0, floor, "floor"), (s.height, ceiling, "ceiling")):
        corners = [(0, 0, z), (s.width, 0, z), (s.width, s.depth, z), (0, s.depth, z)]
        site.build(quads(corners), palette.add(paint), label)
    openings: Openings = defaultdict(list)
    _doors(site, openings)
    _windows(site, openings)
    usual = palette.draw("light" if site.happens(0.6) else "muted")
    for wall in range(4):
        paint_number = usual if site.happens(0.8) else palette.draw("muted")
        site.build(_wall(site, wall, openings[wall]), paint_number, "wall")
    _structure(site, palette.draw("light"))
    return _lights(site)


def _wall(site: Site, wall: int, openings: list[Opening]) -> Floats:
    cuts = sorted({0.0, site.length(wall), *(v for o in openings for v in o[:2])})
    levels = sorted({0.0, site.settings.height, *(v for o in openings for v in o[2:])})
    faces = []
    for a, b in pairwise(cuts):
        for low, high in pairwise(levels):
            u, v = (a + b) / 2, (low + high) / 2
            if not any(o[0] < u < o[1] and o[2] < v < o[3] for o in openings):
                start, end = site.at_wall(wall, a), site.at_wall(wall, b)
                faces.append([(*start, low), (*end, low), (*end, high), (*start, high)])
    return quads(faces)


def _doors(site: Site, openings: Openings) -> None:
    rng = site.rng
    missing = 1 + int(rng.integers(0, 2 + int(site.settings.depth / 4)))
    for _ in range(12 * missing):
        wall = int(rng.integers(4))
        width, height = rng.uniform((0.8, 2.0), (1.05, 2.15)).tolist()
        slack = site.length(wall) - width - 0.3
        if missing == 0 or slack <= 0 or height > site.settings.height - 0.05:
            continue
        along = 0.15 + width / 2 + rng.uniform(0, slack)
        free = site.claim(*site.at_wall(wall, along, width / 2), width, width)
        if free and site.hang(wall, along, width + 0.16, 0, height + 0.1):
            opened = rng.uniform(0.3, 1.6) if site.happens(0.35) else 0.0
            leaf = site.make("door", w=width, h=height, open=opened)
            site.put(leaf.mesh, *site.at_wall(wall, along), 0.0, WALL_YAWS[wall])
            openings[wall].append((along - width / 2, along + width / 2, 0.0, height))
            missing -= 1


def _windows(site: Site, openings: Openings) -> None:
    rng = site.rng
    for wall in rng.permutation(4)[: 1 + (site.settings.area > 40)].tolist():
        stretches = max(int(site.length(wall) / 2.2), 1)
        for place in np.flatnonzero(rng.random(stretches) < site.settings.window_share).tolist():
            width = rng.uniform(0.8, 1.8)
            low, high = rng.uniform((0.5, 1.9), (1.0, site.settings.height - 0.25)).tolist()
            along = (place + 0.5) * site.length(wall) / stretches
            if site.hang(wall, along, width + 0.5, low - 0.2, high + 0.2):
                pane, yaw = site.make("window", w=width, low=low, high=high), WALL_YAWS[wall]
                site.put(pane.mesh, *site.at_wall(wall, along), 0.0, yaw)
                openings[wall].append((along - width / 2, along + width / 2, low, high))


def _structure(site: Site, paint: int) -> None:
    """Add columns at walls or, in halls, in the middle, and beams under the ceiling."""
    rng, s = site.rng, site.settings
    large = s.area > 35.0
    for _ in range(int(rng.integers(0, 2 + large * 3))):
        size = rng.uniform(0.25, 0.55)
        if min(s.width, s.depth) > 6.2 and site.happens(0.6):
            x, y = (rng.uniform(0.25, 0.75, 2) * (s.width, s.depth)).tolist()
        else:
            wall = int(rng.integers(4))
            x, y = site.at_wall(wall, rng.uniform(0.2, 0.8) * site.length(wall), size / 2)
        if site.claim(x, y, size, size):
            if site.happens(0.3):
                shaft = tube((x, y, 0), (x, y, s.height), size / 2, sides=18)
            else:
                shaft = box((x, y, s.height / 2), (size, size, s.height))
            site.build(shaft, paint, "column")
    for _ in range(int(rng.integers(0, 2 + large * 2))):
        thick, drop, at = rng.uniform((0.2, 0.12, 0.0), (0.45, 0.4, 1.0)).tolist()
        if site.happens(0.5):
            low, high = (0.0, at * (s.depth - thick)), (s.width, at * (s.depth - thick) + thick)
        else:
            low, high = (at * (s.width - thick), 0.0), (at * (s.width - thick) + thick, s.depth)
        site.build(block((*low, s.height - drop), (*high, s.height)), paint, "beam")


def _lights(site: Site) -> Floats:
    """Hang lights on a grid under the ceiling; return their places."""
    s = site.settings
    pitch = site.rng.uniform(1.8, 3.0)
    size = np.array((0.25, 1.2, 0.07) if site.happens(0.5) else (0.5, 0.5, 0.04))
    columns, rows = (max(round(extent / pitch), 1) for extent in (s.width, s.depth))
    x, y = np.meshgrid((np.arange(columns) + 0.5) / columns, (np.arange(rows) + 0.5) / rows)
    places = np.stack([x.reshape(-1) * s.width, y.reshape(-1) * s.depth], 1)
    for place in places:
        site.build(box((*place, s.height - size[2] / 2), size), "lamp", "clutter")
    return np.insert(places, 2, s.height - 0.1, axis=1)
