"""Floor, ceiling, walls with their openings, columns, beams and lights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pcnn.simulate.interiors.classes import Element
from pcnn.simulate.interiors.fixtures import radiator
from pcnn.simulate.interiors.openings import door, window
from pcnn.simulate.interiors.paint import Paint
from pcnn.simulate.interiors.shapes import painted
from pcnn.simulate.interiors.site import WALL_YAWS, Site
from pcnn.simulate.mesh import Floats
from pcnn.simulate.primitives import box, boxes, quads, tube

Opening = tuple[float, float, float, float]  # along from, along to, low, high [m]


def _wall_quads(site: Site, wall: int, openings: list[Opening]) -> Floats:
    """Tile a wall around its openings."""
    cuts = sorted({0.0, site.length(wall), *(v for o in openings for v in o[:2])})
    levels = sorted({0.0, site.settings.height, *(v for o in openings for v in o[2:])})
    faces = []
    for a, b in pairwise(cuts):
        for low, high in pairwise(levels):
            u, v = (a + b) / 2, (low + high) / 2
            if any(o[0] < u < o[1] and o[2] < v < o[3] for o in openings):
                continue
            (x0, y0), (x1, y1) = site.at_wall(wall, a, 0.0), site.at_wall(wall, b, 0.0)
            faces.append([(x0, y0, low), (x1, y1, low), (x1, y1, high), (x0, y0, high)])
    return quads(faces)


def _doors(site: Site) -> list[list[Opening]]:
    """Put doors into the walls and keep the floor before them free."""
    rng, openings = site.rng, [[], [], [], []]  # type: ignore[var-annotated]
    placed = 0
    for _ in range(12 * site.settings.doors):
        if placed == site.settings.doors:
            break
        wall = int(rng.integers(4))
        width, height = float(rng.uniform(0.8, 1.05)), float(rng.uniform(2.0, 2.15))
        slack = site.length(wall) - width - 0.3
        if slack <= 0 or height > site.settings.height - 0.05:
            continue
        along = 0.15 + width / 2 + float(rng.uniform(0, slack))
        x, y = site.at_wall(wall, along, width / 2)
        if not site.claim(x, y, width, width) or not site.hang(
            wall, along, width + 0.16, 0, height + 0.1
        ):
            continue
        opened = float(rng.uniform(0.3, 1.6)) if rng.random() < 0.35 else 0.0
        mesh = door(rng, site.palette, width, height, opened)
        site.put(mesh, *site.at_wall(wall, along, 0.0), 0.0, WALL_YAWS[wall])
        openings[wall].append((along - width / 2, along + width / 2, 0.0, height))
        placed += 1
    return openings


def _windows(site: Site, openings: list[list[Opening]]) -> None:
    """Put windows into one or two walls."""
    rng = site.rng
    for wall in rng.permutation(4)[: 1 + (site.length(0) * site.length(1) > 40)]:
        stretches = max(int(site.length(wall) / 2.2), 1)
        for place in range(stretches):
            if not site.happens(site.settings.window_share):
                continue
            width = float(rng.uniform(0.8, 1.8))
            low, high = (
                float(rng.uniform(0.5, 1.0)),
                float(rng.uniform(1.9, site.settings.height - 0.25)),
            )
            along = (place + 0.5) * site.length(wall) / stretches
            if not site.hang(wall, along, width + 0.5, low - 0.2, high + 0.2):
                continue
            yaw = WALL_YAWS[wall]
            site.put(
                window(rng, site.palette, width, low, high),
                *site.at_wall(wall, along, 0.0),
                0.0,
                yaw,
            )
            openings[wall].append((along - width / 2, along + width / 2, low, high))
            if site.happens(0.5):
                heater = radiator(rng, site.palette, width * 0.9)
                site.stand(heater, *site.at_wall(int(wall), along, 0.1), yaw)


def _structure(site: Site) -> None:
    """Add cut-out corners, columns and beams."""
    rng, s = site.rng, site.settings
    wall = site.palette.light()
    if site.happens(s.notch_share) and min(s.width, s.depth) > 3.0:
        wide, deep = (float(v) for v in rng.uniform(0.4, min(s.width, s.depth) * 0.3, 2))
        x = wide / 2 if rng.random() < 0.5 else s.width - wide / 2
        y = deep / 2 if rng.random() < 0.5 else s.depth - deep / 2
        if site.claim(x, y, wide, deep, margin=0.0):
            block = boxes([[x, y, s.height / 2]], [wide, deep, s.height])
            site.put(painted(block, wall, Element.WALL))
    for _ in range(s.columns):
        size = float(rng.uniform(0.25, 0.55))
        if min(s.width, s.depth) > 6.2 and site.happens(0.6):  # halls have columns in the middle
            x, y = (float(rng.uniform(0.25, 0.75)) * extent for extent in (s.width, s.depth))
        else:
            side = int(rng.integers(4))
            x, y = site.at_wall(side, float(rng.uniform(0.2, 0.8)) * site.length(side), size / 2)
        if not site.claim(x, y, size, size):
            continue
        if site.happens(0.3):
            shaft = tube((x, y, 0), (x, y, s.height), size / 2, sides=18)
        else:
            shaft = box((x - size / 2, y - size / 2, 0), (x + size / 2, y + size / 2, s.height))
        site.put(painted(shaft, wall, Element.COLUMN))
    for _ in range(s.beams):
        thick, drop = float(rng.uniform(0.2, 0.45)), float(rng.uniform(0.12, 0.4))
        if site.happens(0.5):
            at = float(rng.uniform(0, s.depth - thick))
            low, high = (0.0, at, s.height - drop), (s.width, at + thick, s.height)
        else:
            at = float(rng.uniform(0, s.width - thick))
            low, high = (at, 0.0, s.height - drop), (at + thick, s.depth, s.height)
        site.put(painted(box(low, high), wall, Element.BEAM))


def _lights(site: Site) -> list[tuple[float, float, float]]:
    """Hang lights on a grid under the ceiling; return their places."""
    rng, s = site.rng, site.settings
    pitch = float(rng.uniform(1.8, 3.0))
    long = site.happens(0.5)
    places = []
    for x in (np.arange(max(round(s.width / pitch), 1)) + 0.5) * (
        s.width / max(round(s.width / pitch), 1)
    ):
        for y in (np.arange(max(round(s.depth / pitch), 1)) + 0.5) * (
            s.depth / max(round(s.depth / pitch), 1)
        ):
            size = (0.25, 1.2, 0.07) if long else (0.5, 0.5, 0.04)
            lamp = boxes([[x, y, s.height - size[2] / 2]], size)
            site.put(painted(lamp, site.palette.lamp(), Element.CLUTTER))
            places.append((float(x), float(y), s.height - 0.1))
    return places


def build_shell(site: Site) -> list[tuple[float, float, float]]:
    """Add everything that belongs to the building; return the places of the lights."""
    rng, s, palette = site.rng, site.settings, site.palette
    w, d, h = s.width, s.depth, s.height
    floor = palette.paints[palette.muted()]
    pattern = str(rng.choice(["tiles", "carpet", "grain", "marbled"]))
    size = {"tiles": float(rng.uniform(0.2, 0.6)), "carpet": 0.01, "grain": 0.12, "marbled": 1.5}[
        pattern
    ]
    floor_paint = palette.add(Paint(floor.colour, pattern, 0.12, round(size, 3)))  # type: ignore[arg-type]
    corners = [(0, 0, 0), (w, 0, 0), (w, d, 0), (0, d, 0)]
    site.put(painted(quads([corners]), floor_paint, Element.FLOOR))
    tiled = site.happens(0.5)
    ceiling = Paint((0.9, 0.9, 0.88), "tiles" if tiled else "plain", 0.05, 0.6)
    above = [(x, y, h) for x, y, _ in corners]
    site.put(painted(quads([above]), palette.add(ceiling), Element.CEILING))
    openings = _doors(site)
    _windows(site, openings)
    paint = palette.light() if rng.random() < 0.6 else palette.muted()
    for wall in range(4):
        colour = paint if rng.random() < 0.8 else palette.muted()
        site.put(painted(_wall_quads(site, wall, openings[wall]), colour, Element.WALL))
    if site.happens(0.6):  # skirting belongs to the wall
        for wall in range(4):
            doors = [o for o in openings[wall] if o[2] == 0.0]
            cuts = sorted([0.0, site.length(wall), *(v for o in doors for v in o[:2])])
            for a, b in zip(cuts[0::2], cuts[1::2], strict=True):
                (x0, y0), (x1, y1) = site.at_wall(wall, a, 0.0), site.at_wall(wall, b, 0.015)
                low, high = (min(x0, x1), min(y0, y1), 0.0), (max(x0, x1), max(y0, y1), 0.09)
                site.put(painted(box(low, high), palette.light(), Element.WALL))
    _structure(site)
    return _lights(site)
