"""What stands in a room of each type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pcnn.simulate.interiors import cases, clutter, fixtures, seats, tables
from pcnn.simulate.interiors.classes import Element
from pcnn.simulate.interiors.item import Item
from pcnn.simulate.interiors.openings import board
from pcnn.simulate.interiors.shapes import painted
from pcnn.simulate.interiors.site import WALL_YAWS, Site
from pcnn.simulate.primitives import box, boxes

_TRIES = 10  # to hang a board


def _seat(site: Site, make: clutter.Small, x: float, y: float, yaw: float) -> None:
    """Put a chair that looks to a table, pushed back a little; it is left out without room."""
    chair = make(site.rng, site.palette)
    back = abs(float(site.rng.normal(0, site.settings.disorder)))
    aside = float(site.rng.normal(0, site.settings.disorder * 0.3))
    # its front is -y, so it is pushed back to +y
    px = x - back * np.sin(yaw) + aside * np.cos(yaw)
    py = y + back * np.cos(yaw) + aside * np.sin(yaw)
    if site.claim(px, py, 0.36, 0.36, margin=0.0):
        turn = float(site.rng.normal(0, site.settings.disorder * 2))
        site.put(chair.mesh, px, py, 0.0, yaw + turn)


def _on(site: Site, base: Item, x: float, y: float, yaw: float, mean: float, desk: bool) -> None:
    """Lay small things on a surface that stands at (x, y)."""
    count = site.several(mean * site.settings.clutter)
    choice = clutter.ON_DESK if desk else clutter.ON_TABLE
    site.put_all(clutter.laid(site.rng, site.palette, base, choice, count), x, y, 0.0, yaw)


def _work_place(site: Site) -> None:
    base = tables.desk(site.rng, site.palette)
    at = site.stand_at_wall(base)
    if at is None:
        return
    x, y, yaw = at
    _on(site, base, x, y, yaw, 5.0, desk=True)
    off = base.depth / 2 + 0.23
    _seat(site, seats.office_chair, x + off * np.sin(yaw), y - off * np.cos(yaw), yaw + np.pi)
    if site.happens(0.3):
        bin_ = clutter.carton(site.rng, site.palette)
        site.put(bin_.mesh, x, y, 0.0, yaw)


def _table_group(site: Site, make: Callable[[], Item], chair: clutter.Small, mean: float) -> bool:
    """Put a table somewhere free with chairs around it."""
    base = make()
    for _ in range(10):
        swapped = site.happens(0.5)
        width, depth = (base.depth, base.width) if swapped else (base.width, base.depth)
        x = float(site.rng.uniform(0, site.settings.width))
        y = float(site.rng.uniform(0, site.settings.depth))
        if not site.claim(x, y, width, depth, margin=0.05):
            continue
        yaw = np.pi / 2 if swapped else 0.0
        site.put(base.mesh, x, y, 0.0, yaw)
        _on(site, base, x, y, yaw, mean, desk=False)
        _chairs_around(site, base, x, y, yaw, chair)
        return True
    return False


def _chairs_around(
    site: Site, base: Item, x: float, y: float, yaw: float, chair: clutter.Small
) -> None:
    c, s = np.cos(yaw), np.sin(yaw)
    count = max(int(base.width / 0.65), 1)
    for side in (-1, 1):
        for place in range(count):
            if not site.happens(0.85):
                continue
            u = (place - (count - 1) / 2) * base.width / count
            v = side * (base.depth / 2 + 0.25)
            # a chair's front is -y: one at +y faces the table as it is
            turn = yaw if side > 0 else yaw + np.pi
            _seat(site, chair, x + c * u - s * v, y + s * u + c * v, turn)


def _at_walls(site: Site, make: clutter.Small, mean: float, least: int = 0) -> None:
    for _ in range(max(site.several(mean * site.settings.furnishing), least)):
        base = make(site.rng, site.palette)
        at = site.stand_at_wall(base)
        if at is not None and base.surface is not None:
            _on(site, base, *at, 1.5, desk=False)


def _boards(site: Site, mean: float) -> None:
    for _ in range(site.several(mean)):
        width, height = (float(v) for v in site.rng.uniform((0.9, 0.8), (2.4, 1.25)))
        middle = float(site.rng.uniform(1.35, 1.6))
        for _ in range(_TRIES):  # furnished walls leave few places
            wall = int(site.rng.integers(4))
            along = float(site.rng.uniform(0, site.length(wall)))
            if site.hang(wall, along, width, middle - height / 2, middle + height / 2):
                mesh = board(site.rng, site.palette, width, height)
                site.put(mesh, *site.at_wall(wall, along, 0.0), middle, WALL_YAWS[wall])
                break


def _on_walls(site: Site, mean: float) -> None:
    """Hang pictures and shelves."""
    for _ in range(site.several(mean * site.settings.clutter)):
        shelf = site.happens(0.25)
        make = clutter.wall_shelf if shelf else clutter.picture
        thing = make(site.rng, site.palette)
        wall, middle = int(site.rng.integers(4)), float(site.rng.uniform(1.25, 1.75))
        along = float(site.rng.uniform(0, site.length(wall)))
        half = thing.height / 2
        if site.hang(wall, along, thing.width, middle - half, middle + 2 * half):
            site.put(thing.mesh, *site.at_wall(wall, along, 0.0), middle, WALL_YAWS[wall])


def _on_floor(site: Site, mean: float) -> None:
    """Leave small things on the floor, most of them along walls and in corners."""
    for _ in range(site.several(mean * site.settings.clutter)):
        thing = clutter.draw(site.rng, site.palette, clutter.ON_FLOOR)
        if site.happens(0.8):
            site.stand_at_wall(thing, tries=4)
        else:
            site.stand_free(thing, tries=4, spin=True)


def _office(site: Site) -> None:
    area = site.settings.width * site.settings.depth
    for _ in range(max(site.several(area / 7 * site.settings.furnishing), 1)):
        _work_place(site)
    _at_walls(site, cases.bookcase, 1.6, least=1)
    _at_walls(site, cases.cabinet, 1.2)
    _boards(site, 0.9)
    if area > 14 and site.happens(0.3):
        _table_group(site, lambda: tables.table(site.rng, site.palette), seats.chair, 2.0)
    if site.happens(0.25):
        _at_walls(site, seats.sofa, 1.0)


def _openspace(site: Site) -> None:
    s = site.settings
    for x in np.arange(1.6, s.width - 1.4, 2.1):
        for y in np.arange(1.8, s.depth - 1.6, 2.6):
            if not site.happens(0.75 * min(s.furnishing, 1.2)):
                continue
            for side in (0, 1):  # two desks back to back
                base = tables.desk(site.rng, site.palette)
                yaw = side * np.pi
                dy = -base.depth / 2 - 0.03 if side == 0 else base.depth / 2 + 0.03
                if not site.stand(base, x, y + dy, yaw):
                    continue
                _on(site, base, x, y + dy, yaw, 5.0, desk=True)
                off = dy + np.sign(dy) * (base.depth / 2 + 0.23)
                _seat(site, seats.office_chair, x, y + off, yaw + np.pi)
            if site.happens(0.4):
                screen = boxes([[x, y, 0.95]], [1.7, 0.04, 0.6])
                site.put(painted(screen, site.palette.fabric(), Element.CLUTTER))
    _at_walls(site, cases.bookcase, 3.0, least=1)
    _at_walls(site, cases.cabinet, 3.0)
    _boards(site, 1.5)


def _conference_room(site: Site) -> None:
    s = site.settings
    longer = s.depth >= s.width
    length = float(np.clip(max(s.width, s.depth) - site.rng.uniform(2.0, 3.2), 1.6, 6.0))
    base = tables.conference_table(site.rng, site.palette, length)
    yaw = np.pi / 2 if longer else 0.0
    make = seats.office_chair if site.happens(0.6) else seats.chair
    for aside in (0.0, 0.3, -0.3, 0.6, -0.6):  # round a column in the middle
        x, y = s.width / 2 + aside * longer, s.depth / 2 + aside * (not longer)
        if site.stand(base, x, y, yaw):
            _on(site, base, x, y, yaw, 4.0, desk=False)
            _chairs_around(site, base, x, y, yaw, make)
            break
    _boards(site, 1.8)
    _at_walls(site, cases.cabinet, 0.7)
    _at_walls(site, seats.chair, 2.0)


def _lounge(site: Site) -> None:
    _at_walls(site, seats.sofa, 2.6, least=1)
    for _ in range(1 + site.several(0.6)):
        table = tables.coffee_table(site.rng, site.palette)
        _table_group(site, lambda table=table: table, seats.stool, 2.5)  # type: ignore[misc]
    for _ in range(site.several(0.8)):
        _table_group(site, lambda: tables.table(site.rng, site.palette), seats.chair, 2.0)
    if site.happens(0.3):
        _at_walls(site, lambda r, p: fixtures.kitchen_line(r, p, float(r.uniform(1.6, 3.0))), 1.0)
    _at_walls(site, cases.bookcase, 1.2)
    _at_walls(site, tables.side_table, 1.2)
    _at_walls(site, clutter.plant, 1.0)


def _lobby(site: Site) -> None:
    wide = float(site.rng.uniform(1.8, 3.2))
    site.stand_free(tables.counter(site.rng, site.palette, wide))
    _lounge(site)
    _at_walls(site, seats.sofa, 2.0)
    _boards(site, 0.8)


def _hallway(site: Site) -> None:
    _boards(site, 1.0)
    _at_walls(site, seats.chair, 1.0)
    _at_walls(site, clutter.bin_, 1.2)
    _at_walls(site, cases.cabinet, 0.8)
    _at_walls(site, cases.bookcase, 0.4)


def _pantry(site: Site) -> None:
    wide = float(site.rng.uniform(1.8, 3.2))
    _at_walls(site, lambda r, p: fixtures.kitchen_line(r, p, wide), 1.5, least=1)
    _at_walls(site, fixtures.fridge, 1.4, least=1)
    _table_group(site, lambda: tables.table(site.rng, site.palette), seats.chair, 2.5)
    _at_walls(site, tables.side_table, 0.6)
    _at_walls(site, cases.rack, 0.5)


def _copy_room(site: Site) -> None:
    _at_walls(site, fixtures.copier, 2.0, least=1)
    _at_walls(site, cases.rack, 1.4, least=1)
    _at_walls(site, cases.cabinet, 1.4, least=1)
    _at_walls(site, tables.table, 1.0)
    _boards(site, 0.6)


def _storage(site: Site) -> None:
    _at_walls(site, cases.rack, 3.5, least=1)
    _at_walls(site, cases.cabinet, 1.4, least=1)
    _on_floor(site, 6.0)
    for _ in range(site.several(1.0)):
        site.stand_free(seats.chair(site.rng, site.palette), spin=True)


def _wc(site: Site) -> None:
    rng, palette = site.rng, site.palette
    stalls = int(rng.integers(1, 4))
    wall, wide = int(rng.choice([0, 2])), 0.95
    for place in range(stalls):
        ware = fixtures.toilet(rng, palette)
        along = 0.55 + place * wide
        x, y = site.at_wall(wall, along, ware.depth / 2 + 0.02)
        if not site.stand(ware, x, y, WALL_YAWS[wall]):
            continue
        if stalls > 1:
            px, py = site.at_wall(wall, along + wide / 2, 0.75)
            site.claim(px, py, 0.03, 1.5, margin=-0.01)
            screen = box((px - 0.012, py - 0.75, 0.12), (px + 0.012, py + 0.75, 2.0))
            site.put(painted(screen, palette.light(), Element.CLUTTER))
    for _ in range(int(rng.integers(1, 4))):
        basin = fixtures.washbasin(rng, palette)
        site.stand_at_wall(basin)
    if site.happens(0.3):
        site.stand_at_wall(fixtures.bathtub(rng, palette))
    _at_walls(site, clutter.bin_, 1.0)


def _auditorium(site: Site) -> None:
    s, rng = site.settings, site.rng
    rows = int((s.depth - 4.0) / 1.0)
    rise = float(rng.uniform(0.0, 0.14))
    count = int((s.width - 1.8) / 0.56)
    paint = site.palette.muted()
    for row in range(rows):
        y, z = 3.6 + row * 1.0, rise * row
        if z > s.height - 1.6:
            break
        if z > 0:
            step = box((0.5, y - 0.5, 0.0), (s.width - 0.5, y + 0.5, z))
            site.put(painted(step, paint, Element.FLOOR))
        # the audience looks to y = 0
        for place, mesh in enumerate(seats.seat_row(rng, site.palette, count)):
            x = s.width / 2 + (place - (count - 1) / 2) * 0.56
            if site.claim(x, y, 0.54, 0.7, margin=0.0) and site.happens(0.97):
                site.put(mesh, s.width / 2, y, z)
    site.stand(tables.desk(rng, site.palette), s.width / 2 - 1.5, 1.6, np.pi)
    wide = min(3.6, s.width * 0.4)
    if site.hang(2, s.width / 2, wide, 0.9, 2.2):
        mesh = board(rng, site.palette, wide, 1.25)
        site.put(mesh, s.width / 2, 0.0, 1.55, WALL_YAWS[2])


def _guest_room(site: Site) -> None:
    rng, palette = site.rng, site.palette
    for _ in range(int(rng.integers(1, 3))):
        at = site.stand_at_wall(seats.bed(rng, palette), tries=16)
        if at is not None:
            stand = tables.side_table(rng, palette)
            x, y, yaw = at
            off = 1.3
            cx, cy = (
                x + off * np.cos(yaw) - 0.75 * np.sin(yaw),
                y + off * np.sin(yaw) + 0.75 * np.cos(yaw),
            )
            if site.stand(stand, cx, cy, yaw):
                lamp = clutter.desk_lamp(rng, palette)
                site.put(lamp.mesh, cx, cy, stand.height, yaw)
    _work_place(site)
    _at_walls(site, cases.cabinet, 1.3)
    _at_walls(site, seats.sofa, 0.7)
    _at_walls(site, tables.side_table, 1.0)
    if site.happens(0.4):
        _at_walls(site, fixtures.washbasin, 1.0)


_PROGRAMMES: dict[str, Callable[[Site], None]] = {
    "WC": _wc,
    "auditorium": _auditorium,
    "conferenceRoom": _conference_room,
    "copyRoom": _copy_room,
    "hallway": _hallway,
    "lobby": _lobby,
    "lounge": _lounge,
    "office": _office,
    "openspace": _openspace,
    "pantry": _pantry,
    "storage": _storage,
    "guestRoom": _guest_room,
}


def furnish(site: Site, room_type: str) -> None:
    """Fill a room whose shell stands."""
    _PROGRAMMES[room_type](site)
    perimeter = 2 * (site.settings.width + site.settings.depth)
    _on_walls(site, perimeter / 6)
    _on_floor(site, perimeter / 5)
