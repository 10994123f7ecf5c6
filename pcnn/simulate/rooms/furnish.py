"""The furniture of a room of each type, as `room_types.yaml` lists it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pcnn.simulate.catalogue import Thing
from pcnn.simulate.mesh import surface
from pcnn.simulate.rooms.settings import TYPES
from pcnn.simulate.rooms.site import LABELS, WALL_YAWS, Site
from pcnn.simulate.shapes import block, box

# small things and their shares
_SMALL = {
    "desk": {
        "monitor": 28, "keyboard": 14, "laptop": 10, "pile": 24, "cup": 12, "desk_lamp": 6,
        "carton": 6,
    },
    "table": {"pile": 30, "cup": 40, "laptop": 12, "carton": 8, "bag": 10},
    "floor": {
        "carton": 28, "bag": 22, "bin": 20, "plant": 14, "pile": 6, "standing_lamp": 5,
        "coat_stand": 5,
    },
}  # fmt: skip


def furnish(site: Site, room_type: str) -> None:
    for kind, what in TYPES[room_type].items():
        if kind == "arrange":
            for name in what:
                _ARRANGEMENTS[name](site)
        elif kind == "at_walls":
            for name, count in what.items():
                _at_walls(site, name, count)
        elif kind == "tables":
            for name, (mean, chair, small) in what.items():
                for _ in range(site.several(mean)):
                    _table_group(site, name, chair, small)
        elif kind == "boards":
            _boards(site, what)
    perimeter = 2 * (site.settings.width + site.settings.depth)
    for _ in range(site.several(perimeter / 6 * site.settings.clutter)):
        thing = site.make("wall_shelf" if site.happens(0.25) else "picture")
        site.hang_anywhere(thing, site.rng.uniform(1.25, 1.75), tries=1)
    _on_floor(site, perimeter / 5)


# -- groups of things


def _seat(site: Site, name: str, x: float, y: float, yaw: float) -> None:
    """Put a chair that looks to a table, pushed back a little; it is left out without room."""
    back = abs(site.rng.normal(0, site.settings.disorder))
    aside = site.rng.normal(0, site.settings.disorder * 0.3)
    # its front is -y, so it is pushed back to +y
    px = x - back * np.sin(yaw) + aside * np.cos(yaw)
    py = y + back * np.cos(yaw) + aside * np.sin(yaw)
    if site.claim(px, py, 0.36, 0.36, margin=0.0):
        turn = site.rng.normal(0, site.settings.disorder * 2)
        site.put(site.make(name).mesh, px, py, 0.0, yaw + turn)


def _small(site: Site, where: str) -> Thing:
    return site.make(site.one_of(_SMALL[where]))


def lay(
    site: Site, base: Thing, x: float, y: float, yaw: float, mean: float, where: str = "table"
) -> None:
    """Lay small things on the top of one at (x, y); they keep clear of each other."""
    if base.top is None:
        return
    c, s = np.cos(yaw), np.sin(yaw)
    taken: list[tuple[float, float, float]] = []
    for _ in range(site.several(mean * site.settings.clutter)):
        thing = _small(site, where)
        reach = max(thing.width, thing.depth) / 2
        span = np.array([base.width - thing.width, base.depth - thing.depth]) / 2
        if span.min() <= 0:
            continue
        u, v = site.rng.uniform(-span, span).tolist()
        if all((u - a) ** 2 + (v - b) ** 2 > (0.8 * (reach + r)) ** 2 for a, b, r in taken):
            taken.append((u, v, reach))
            turn = yaw + site.rng.normal(0, 0.2)
            site.put(thing.mesh, x + c * u - s * v, y + s * u + c * v, base.top, turn)


def _chairs_around(site: Site, base: Thing, x: float, y: float, yaw: float, chair: str) -> None:
    c, s = np.cos(yaw), np.sin(yaw)
    count = max(int(base.width / 0.65), 1)
    for side in (-1, 1):
        for place in range(count):
            if site.happens(0.85):
                u = (place - (count - 1) / 2) * base.width / count
                v = side * (base.depth / 2 + 0.25)
                # a chair's front is -y: one at +y faces the table as it is
                turn = yaw if side > 0 else yaw + np.pi
                _seat(site, chair, x + c * u - s * v, y + s * u + c * v, turn)


def _table_group(site: Site, table: str, chair: str, small: float) -> None:
    base = site.make(table)
    for _ in range(10):
        yaw = np.pi / 2 if site.happens(0.5) else 0.0
        x, y = site.anywhere()
        if site.stand(base, x, y, yaw, margin=0.05):
            lay(site, base, x, y, yaw, small)
            _chairs_around(site, base, x, y, yaw, chair)
            return


def _at_walls(site: Site, name: str, count: Any) -> None:
    least, _, mean = str(count).rpartition(" + ")
    number = site.several(float(mean) * site.settings.furnishing)
    for _ in range(max(number, int(least or 0))):
        base = site.make(name)
        at = site.stand_at_wall(base)
        if at is not None:
            lay(site, base, *at, 1.5)


def _boards(site: Site, mean: float) -> None:
    for _ in range(site.several(mean)):
        width, height = site.rng.uniform((0.9, 0.8), (2.4, 1.25)).tolist()
        # furnished walls leave few places
        site.hang_anywhere(
            site.make("board", w=width, h=height), site.rng.uniform(1.35, 1.6), tries=10
        )


def _on_floor(site: Site, mean: float) -> None:
    for _ in range(site.several(mean * site.settings.clutter)):
        thing = _small(site, "floor")
        if site.happens(0.8):
            site.stand_at_wall(thing, tries=4)
        else:
            site.stand_free(thing, tries=4)


# -- arrangements


def _work_place(site: Site) -> None:
    base = site.make("desk")
    at = site.stand_at_wall(base)
    if at is not None:
        x, y, yaw = at
        lay(site, base, x, y, yaw, 5.0, "desk")
        off = base.depth / 2 + 0.23
        _seat(site, "office_chair", x + off * np.sin(yaw), y - off * np.cos(yaw), yaw + np.pi)
        if site.happens(0.3):
            site.put(site.make("carton").mesh, x, y, 0.0, yaw)


def _work_places(site: Site) -> None:
    for _ in range(max(site.several(site.settings.area / 7 * site.settings.furnishing), 1)):
        _work_place(site)


def _rows_of_desks(site: Site) -> None:
    s = site.settings
    for x in np.arange(1.6, s.width - 1.4, 2.1).tolist():
        for y in np.arange(1.8, s.depth - 1.6, 2.6).tolist():
            if not site.happens(0.75 * min(s.furnishing, 1.2)):
                continue
            for side, yaw in ((-1, 0.0), (1, np.pi)):  # two desks back to back
                base = site.make("desk")
                away = side * (base.depth / 2 + 0.03)
                if site.stand(base, x, y + away, yaw):
                    lay(site, base, x, y + away, yaw, 5.0, "desk")
                    seat = away + side * (base.depth / 2 + 0.23)
                    _seat(site, "office_chair", x, y + seat, yaw + np.pi)
            if site.happens(0.4):
                site.build(box((x, y, 0.95), (1.7, 0.04, 0.6)), "fabric", "clutter")


def _conference(site: Site) -> None:
    s = site.settings
    longer = s.depth >= s.width
    length = float(np.clip(max(s.width, s.depth) - site.rng.uniform(2.0, 3.2), 1.6, 6.0))
    base = site.make("conference_table", w=length)
    yaw = np.pi / 2 if longer else 0.0
    chair = "office_chair" if site.happens(0.6) else "padded_chair"
    for aside in (0.0, 0.3, -0.3, 0.6, -0.6):  # round a column in the middle
        x, y = s.width / 2 + aside * longer, s.depth / 2 + aside * (not longer)
        if site.stand(base, x, y, yaw):
            lay(site, base, x, y, yaw, 4.0)
            _chairs_around(site, base, x, y, yaw, chair)
            return


def _reception(site: Site) -> None:
    site.stand_free(site.make("counter"))


def _piles(site: Site) -> None:
    _on_floor(site, 6.0)


def _stalls(site: Site) -> None:
    rng = site.rng
    stalls = int(rng.integers(1, 4))
    wall, wide = int(rng.choice([0, 2])), 0.95
    for place in range(stalls):
        ware = site.make("toilet")
        along = 0.55 + place * wide
        if not site.stand(ware, *site.at_wall(wall, along, ware.depth / 2 + 0.02), WALL_YAWS[wall]):
            continue
        if stalls > 1:
            x, y = site.at_wall(wall, along + wide / 2, 0.75)
            site.claim(x, y, 0.03, 1.5, margin=-0.01)
            screen = block((x - 0.012, y - 0.75, 0.12), (x + 0.012, y + 0.75, 2.0))
            site.build(screen, "light", "clutter")
    for _ in range(int(rng.integers(1, 4))):
        site.stand_at_wall(site.make("washbasin"))
    if site.happens(0.3):
        site.stand_at_wall(site.make("bathtub"))


def _rows_of_seats(site: Site) -> None:
    s, rng, palette = site.settings, site.rng, site.palette
    rise, count = rng.uniform(0.0, 0.14), int((s.width - 1.8) / 0.56)
    step_paint = palette.draw("muted")
    for row in range(int((s.depth - 4.0) / 1.0)):
        y, z = 3.6 + row * 1.0, rise * row
        if z > s.height - 1.6:
            break
        if z > 0:
            step = block((0.5, y - 0.5, 0.0), (s.width - 0.5, y + 0.5, z))
            site.put(surface(step, step_paint, LABELS["floor"]))
        cloth, frame = palette.draw("fabric"), palette.draw("metal")
        for place in range(count):  # the audience looks to y = 0
            x = s.width / 2 + (place - (count - 1) / 2) * 0.56
            if site.claim(x, y, 0.54, 0.7, margin=0.0) and site.happens(0.97):
                site.put(site.make("seat", cloth=cloth, frame=frame).mesh, x, y, z)
    site.stand(site.make("desk"), s.width / 2 - 1.5, 1.6, np.pi)
    wide = min(3.6, s.width * 0.4)
    if site.hang(2, s.width / 2, wide, 0.9, 2.2):
        screen = site.make("board", w=wide, h=1.25)
        site.put(screen.mesh, s.width / 2, 0.0, 1.55, WALL_YAWS[2])


def _beds(site: Site) -> None:
    for _ in range(int(site.rng.integers(1, 3))):
        at = site.stand_at_wall(site.make("bed"))
        if at is None:
            continue
        stand, (x, y, yaw) = site.make("side_table"), at
        c, s = np.cos(yaw), np.sin(yaw)
        x, y = x + 1.3 * c - 0.75 * s, y + 1.3 * s + 0.75 * c
        if site.stand(stand, x, y, yaw):
            site.put(site.make("desk_lamp").mesh, x, y, stand.height, yaw)


_ARRANGEMENTS: dict[str, Callable[[Site], None]] = {
    f.__name__[1:]: f
    for f in (
        _beds, _conference, _piles, _reception, _rows_of_desks, _rows_of_seats, _stalls,
        _work_place, _work_places,
    )
}  # fmt: skip
