"""The furniture of a room of each type, as `room_types.yaml` lists it."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.catalogue import Thing
from pcnn.simulate.mesh import join
from pcnn.simulate.rooms.paint import Palette
from pcnn.simulate.rooms.room import TYPES, Room, draw_settings
from pcnn.simulate.rooms.shell import build_shell
from pcnn.simulate.rooms.site import Site
from pcnn.simulate.simulator import Split

# small things and their shares
_SMALL = {
    "desk": {"monitor": 30, "pile": 40, "cup": 20},
    "table": {"pile": 30, "cup": 40, "carton": 10},
    "floor": {"carton": 40, "bin": 25, "plant": 20, "pile": 10},
    "wall": {"picture": 60, "wall_box": 30},
}


def build_room(rng: np.random.Generator, room_type: str, split: Split) -> Room:
    """Build a room of a type: walls and what belongs to them, then what stands and lies in it."""
    settings, kind = draw_settings(rng, room_type, split), TYPES[room_type]
    site = Site(rng, settings, Palette(rng))
    lights = build_shell(site)
    if "rows" in kind:
        _rows(site, *kind["rows"])
    for _ in range(site.several(settings.area / 7 * kind.get("desks", 0), least="desks" in kind)):
        _desk(site)
    for name, (count, chair, small) in kind.get("tables", {}).items():
        for _ in range(_number(site, count)):
            _table_group(site, name, chair, small)
    for name, count in kind.get("at_walls", {}).items():
        for _ in range(_number(site, count)):
            base = site.make(name)
            at = site.stand_at_wall(base)
            if at is not None:
                _lay(site, base, *at, 1.5)
    for _ in range(site.several(kind.get("boards", 0))):
        width, height = rng.uniform((0.9, 0.8), (2.4, 1.25)).tolist()
        # furnished walls leave few places
        site.hang_anywhere(site.make("board", w=width, h=height), rng.uniform(1.35, 1.6), tries=10)
    perimeter = 2 * (settings.width + settings.depth) * settings.clutter
    for _ in range(site.several(perimeter / 4)):
        site.hang_anywhere(_small(site, "wall"), rng.uniform(1.0, 1.75), tries=2)
    for _ in range(site.several(perimeter / 5)):
        site.stand_at_wall(_small(site, "floor"), tries=4)
    return Room.of(settings, join(site.meshes), site.palette.paints, lights)


def _number(site: Site, count: str) -> int:
    """Draw a number of things of which `least + mean` are told."""
    least, mean = count.split(" + ")
    return int(least) + site.several(float(mean) * site.settings.furnishing)


def _small(site: Site, where: str) -> Thing:
    shares = _SMALL[where]
    chances = np.array(list(shares.values()), np.float64)
    return site.make(str(site.rng.choice(list(shares), p=chances / chances.sum())))


def _seat(site: Site, name: str, x: float, y: float, yaw: float) -> None:
    """Put a chair that looks to a table, pushed back a little; it is left out without room."""
    back = abs(site.rng.normal(0, site.settings.disorder))
    # its front is -y, so it is pushed back to +y
    px, py = x - back * np.sin(yaw), y + back * np.cos(yaw)
    span = site.settings
    inside = 0.3 < px < span.width - 0.3 and 0.3 < py < span.depth - 0.3
    if inside and site.claim(px, py, 0.36, 0.36, margin=0.0):
        turn = site.rng.normal(0, site.settings.disorder * 2)
        site.put(site.make(name).mesh, px, py, 0.0, yaw + turn)


def _lay(
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


def _table_group(site: Site, table: str, chair: str, small: float) -> None:
    """Stand a table somewhere, chairs along two sides of it, and small things on it."""
    base = site.make(table)
    for _ in range(10):
        yaw = np.pi / 2 if site.happens(0.5) else 0.0
        x, y = site.rng.uniform(0, (site.settings.width, site.settings.depth)).tolist()
        if not site.stand(base, x, y, yaw, margin=0.05):
            continue
        _lay(site, base, x, y, yaw, small)
        c, s = np.cos(yaw), np.sin(yaw)
        count = max(int(base.width / 0.65), 1)
        for side in (-1, 1):
            for place in np.flatnonzero(site.rng.random(count) < 0.85).tolist():
                u = (place - (count - 1) / 2) * base.width / count
                v = side * (base.depth / 2 + 0.25)
                # a chair's front is -y: one at +y faces the table as it is
                turn = yaw if side > 0 else yaw + np.pi
                _seat(site, chair, x + c * u - s * v, y + s * u + c * v, turn)
        return


def _desk(site: Site) -> None:
    base = site.make("desk")
    at = site.stand_at_wall(base)
    if at is not None:
        x, y, yaw = at
        _lay(site, base, x, y, yaw, 5.0, "desk")
        off = base.depth / 2 + 0.23
        _seat(site, "office_chair", x + off * np.sin(yaw), y - off * np.cos(yaw), yaw + np.pi)


def _rows(site: Site, name: str, chair: str | None, across: float, along: float) -> None:
    """Stand things in rows that look to y = 0, each with its chair before it."""
    for x in np.arange(1.2, site.settings.width - 1.0, across).tolist():
        for y in np.arange(3.0, site.settings.depth - 1.0, along).tolist():
            base = site.make(name)
            if site.happens(0.85) and site.stand(base, x, y, 0.0, margin=0.0):
                _lay(site, base, x, y, 0.0, 5.0, "desk")
                if chair is not None:
                    _seat(site, chair, x, y - base.depth / 2 - 0.23, np.pi)
