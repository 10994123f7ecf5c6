"""Things that hold books and boxes: bookcases, racks, wall shelves, piles."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from pcnn.datasets.s3dis.classes import CLASS_NAMES
from pcnn.simulate.catalogue import Thing
from pcnn.simulate.mesh import Mesh, join, surface
from pcnn.simulate.rooms.paint import Palette
from pcnn.simulate.shapes import box

_BOOKCASE, _CLUTTER = CLASS_NAMES.index("bookcase"), CLASS_NAMES.index("clutter")


def books(
    rng: np.random.Generator, palette: Palette, width: float, z: float, room: float
) -> list[Mesh]:
    """Stand books on a shelf about x = 0 at height z, spines to -y at y = 0, with gaps."""
    count = max(int(width / 0.03), 1)
    widths = rng.uniform(0.012, 0.055, count)
    ends = np.cumsum(widths) - width / 2
    keep = (ends < width * (rng.uniform(0.3, 1.0) - 0.5)) & (rng.random(count) > 0.06)
    heights = np.minimum(rng.uniform(0.17, 0.32, count), room - 0.02)
    depths = rng.uniform(0.13, 0.22, count)
    centre = np.stack([ends - widths / 2, depths / 2, z + heights / 2], 1)
    size = np.stack([widths * 0.94, depths, heights], 1)
    shade = np.where(keep, rng.integers(0, 4, count), -1)
    return [
        surface(box(centre[shade == s], size[shade == s]), palette.draw("coloured"), _BOOKCASE)
        for s in range(4)
        if (shade == s).any()
    ]


def bookcase(rng: np.random.Generator, palette: Palette) -> Thing:
    width, depth = rng.uniform((0.6, 0.26), (1.3, 0.38)).tolist()
    height = float(rng.choice([0.8, 1.2, 1.8, 2.0, 2.2])) * rng.uniform(0.95, 1.05)
    wood = palette.draw("wood" if rng.random() < 0.7 else "light")
    levels = np.linspace(
        0.06, height - 0.02, max(round(height / rng.uniform(0.32, 0.42)), 2) + 1
    ).tolist()
    case = [
        box([[0, 0, z] for z in levels], (width, depth, 0.022)),
        box([[s * width / 2, 0, height / 2] for s in (-1, 1)], (0.022, depth, height)),
        box((0, depth / 2 - 0.005, height / 2), (width, 0.01, height)),
    ]
    parts = [surface(np.concatenate(case), wood, _BOOKCASE)]
    for low, high in pairwise(levels):
        room, z, use = high - low - 0.022, low + 0.011, rng.random()
        if use < 0.65:
            row = books(rng, palette, width - 0.04, z, room)
            parts += [mesh.moved(0, -depth / 2 + rng.uniform(0.02, 0.07)) for mesh in row]
        elif use < 0.85:
            largest = (min(0.4, width - 0.1), depth - 0.04, room - 0.03)
            size = rng.uniform((0.15, 0.15, 0.08), largest)
            x = rng.uniform(-1, 1) * (width - size[0] - 0.06) / 2
            whole = box((x, 0, z + size[2] / 2), size)
            parts.append(surface(whole, palette.draw("muted"), _BOOKCASE))
    return Thing(join(parts), top=height if height < 1.4 else None)


def rack(rng: np.random.Generator, palette: Palette) -> Thing:
    width, depth, height = rng.uniform((0.9, 0.4, 1.6), (1.6, 0.6, 2.2)).tolist()
    levels = np.linspace(0.12, height - 0.05, int(rng.integers(4, 6))).tolist()
    corners = [[x * width / 2, y * depth / 2, height / 2] for x in (-1, 1) for y in (-1, 1)]
    planks = box([[0, 0, z] for z in levels], (width, depth, 0.03))
    frame = np.concatenate([box(corners, (0.035, 0.035, height)), planks])
    parts = [surface(frame, palette.draw("metal"), _BOOKCASE)]
    for low, high in pairwise(levels):
        x = -width / 2 + 0.05
        while x < width / 2 - 0.2:
            size = rng.uniform((0.14, 0.2, 0.08), (0.45, depth, high - low - 0.05))
            if rng.random() < 0.75 and x + size[0] < width / 2:
                centre = (x + size[0] / 2, rng.uniform(-0.04, 0.04), low + 0.015 + size[2] / 2)
                parts.append(surface(box(centre, size), palette.draw("muted"), _CLUTTER))
            x += size[0] + rng.uniform(0.01, 0.12)
    return Thing(join(parts))


def wall_shelf(rng: np.random.Generator, palette: Palette) -> Thing:
    """Make a board with books on a wall; its back is y = 0, its board z = 0."""
    width = rng.uniform(0.6, 1.2)
    plank = box((0, -0.12, 0), (width, 0.24, 0.025))
    row = books(rng, palette, width, 0.013, 0.34)
    return Thing(
        join(
            [
                surface(plank, palette.draw("wood"), _BOOKCASE),
                *(mesh.moved(0, -0.22) for mesh in row),
            ]
        )
    )


def pile(rng: np.random.Generator, palette: Palette) -> Thing:
    parts, z = [], 0.0
    for _ in range(int(rng.integers(1, 7))):
        size = rng.uniform((0.16, 0.2, 0.008), (0.23, 0.31, 0.045))
        x, y = rng.uniform(-0.015, 0.015, 2)
        paint = palette.draw("light" if rng.random() < 0.5 else "coloured")
        one = surface(box((x, y, z + size[2] / 2), size), paint, _CLUTTER)
        parts.append(one.moved(0, 0, 0, rng.normal(0, 0.15)))
        z += float(size[2])
    return Thing(join(parts))


#: makers by the names of their things
SHELVES: dict[str, Callable[[np.random.Generator, Palette], Thing]] = {
    f.__name__: f for f in (bookcase, rack, wall_shelf, pile)
}
