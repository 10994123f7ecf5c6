"""A room as people use it: its own kind of chairs, groups of tables, and small things about."""

from __future__ import annotations

from typing import Any

import numpy as np

from pcnn.simulate.catalogue import Thing
from pcnn.simulate.rooms.furnish import lay
from pcnn.simulate.rooms.site import Site
from pcnn.simulate.shapes import box, tube

Style = tuple[str, dict[str, Any]]

# kinds and their shares; the name itself draws a kind for every piece
_CHAIRS = {
    "shell_chair": 30, "tub_chair": 20, "padded_chair": 15, "wooden_chair": 8, "rung_chair": 7,
    "chair": 20,
}  # fmt: skip
_TABLES = {"pedestal_table": 35, "square_table": 20, "long_table": 20, "table": 25}
# chance of groups of tables by type of room
_GROUPS = {
    "lounge": 0.6, "lobby": 0.6, "pantry": 0.7, "openspace": 0.5, "conferenceRoom": 0.5,
    "office": 0.3, "hallway": 0.2, "copyRoom": 0.2, "storage": 0.15,
}  # fmt: skip
# what hangs on walls, with its lowest and highest middle [m]
_ON_WALLS = {
    "notice": (30, 1.0, 1.8), "plate": (30, 0.25, 1.3), "screen": (12, 1.1, 1.7),
    "hung_coat": (8, 1.1, 1.4), "extinguisher": (8, 0.5, 1.1), "wall_box": (12, 0.4, 2.0),
}  # fmt: skip


def styles(site: Site) -> dict[str, Style]:
    """Draw the chairs and tables of a room: most rooms have one kind of each, in one colour."""
    draw = site.palette.draw
    chair, table = site.one_of(_CHAIRS), site.one_of(_TABLES)
    paints: dict[str, Any] = {}
    if chair in ("shell_chair", "tub_chair") and site.happens(0.8):
        names = ("wood", "fabric", "coloured", "dark", "light")
        paints = {"shell": draw(names[int(site.rng.integers(5))]), "frame": draw("metal")}
    elif chair != "chair" and site.happens(0.8):
        paints = {"frame": draw("metal" if chair == "padded_chair" else "wood")}
        paints["cover"] = draw("fabric")
    tops: dict[str, Any] = {}
    if table != "table" and site.happens(0.8):
        tops = {"plate": draw("wood" if site.happens(0.5) else "light")}
    found = {"chair": (chair, paints), "table": (table, tops)}
    if site.happens(0.25):  # at desks too
        found["office_chair"] = found["chair"]
    return found


def groups(site: Site, room_type: str) -> None:
    if not site.happens(_GROUPS.get(room_type, 0.0)):
        return
    most = max(site.settings.area / 6.0 * site.settings.furnishing, 1.0)
    name = "pedestal_table" if site.happens(0.5) else "table"
    for _ in range(int(site.rng.integers(1, int(most) + 2))):
        base = site.make(name)
        yaw = np.pi / 2 if site.happens(0.5) else 0.0
        width, depth = _extent(base, yaw)
        for _ in range(6):
            x, y = site.anywhere()
            if site.is_free(x, y, width + 0.3, depth + 0.3):
                _group(site, base, x, y, yaw)
                break


def _group(site: Site, base: Thing, x: float, y: float, yaw: float) -> None:
    site.put(base.mesh, x, y, 0.0, yaw)
    lay(site, base, x, y, yaw, 1.2)
    width, depth = _extent(base, yaw)
    count = int(site.rng.integers(2, 6))
    start = site.rng.uniform(0, 2 * np.pi)
    s, wall = site.settings, 0.4  # [m] from the middle of a chair
    for place in range(count):
        angle = start + 2 * np.pi * place / count + site.rng.normal(0, 0.15)
        across, along = abs(np.cos(angle)), abs(np.sin(angle))
        rim = min(width / max(across, 1e-6), depth / max(along, 1e-6), max(width, depth)) / 2
        off = rim + site.rng.uniform(-0.12, 0.35)
        px, py = x + off * np.cos(angle), y + off * np.sin(angle)
        inside = wall < px < s.width - wall and wall < py < s.depth - wall
        if inside and site.claim(px, py, 0.4, 0.4, margin=0.0):
            # a chair looks to -y: one at +y faces the table as it is
            turn = angle - np.pi / 2 + site.rng.normal(0, 0.1 + s.disorder)
            site.put(site.make("chair").mesh, px, py, 0.0, turn)
    site.take(x, y, width, depth)


def litter(site: Site) -> None:
    """Add what hangs on walls and ceilings and lies on floors; all of it is clutter."""
    s, rng = site.settings, site.rng
    shares = {name: entry[0] for name, entry in _ON_WALLS.items()}
    for _ in range(site.several((s.width + s.depth) / 2.5 * s.clutter)):
        name = site.one_of(shares)
        middle = rng.uniform(*_ON_WALLS[name][1:])
        site.hang_anywhere(site.make(name), middle, tries=2)
    for _ in range(site.several(s.area / 12)):
        x, y = site.anywhere()
        wide, deep, thick = rng.uniform((0.1, 0.1, 0.02), (0.65, 0.65, 0.12)).tolist()
        middle = (x, y, s.height - thick / 2)
        site.build(box(middle, (wide, deep, thick)), "light", "clutter")  # a vent, a loudspeaker
    if site.happens(0.25):  # a pipe below the ceiling, along the room
        x, z, r = rng.uniform((0.3, s.height - 0.5, 0.03), (s.width - 0.3, s.height - 0.15, 0.15))
        pipe = tube((float(x), 0.0, float(z)), (float(x), s.depth, float(z)), float(r), sides=12)
        site.build(pipe, "metal", "clutter")
    if site.happens(0.3):  # a projector
        x, y, drop = rng.uniform((0.3, 0.3, 0.25), (0.7, 0.7, 0.7)) * (s.width, s.depth, 1.0)
        rod = box((x, y, s.height - drop / 2), (0.05, 0.05, drop))
        case = box((x, y, s.height - drop), (0.36, 0.3, 0.12))
        site.build(np.concatenate([rod, case]), "light", "clutter")
    for _ in range(site.several(s.area / 10 * s.clutter)):  # cables
        x, y = site.anywhere()
        length, yaw = rng.uniform((0.4, 0.0), (1.5, 2 * np.pi)).tolist()
        x1, y1 = x + length * np.cos(yaw), y + length * np.sin(yaw)
        if 0.1 < x1 < s.width - 0.1 and 0.1 < y1 < s.depth - 0.1:
            site.build(tube((x, y, 0.02), (x1, y1, 0.02), 0.02, sides=5), "dark", "clutter")


def _extent(thing: Thing, yaw: float) -> tuple[float, float]:
    """Width and depth on the floor of all of a thing that is turned by 0 or a quarter."""
    corners = thing.mesh.triangles.reshape(-1, 3)
    width, depth, _ = (corners.max(0) - corners.min(0)).tolist()
    return (depth, width) if yaw else (width, depth)
