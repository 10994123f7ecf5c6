"""Small things: on desks, on floors, on walls and hooks. All class clutter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pcnn.simulate.interiors.cases import books
from pcnn.simulate.interiors.classes import Element
from pcnn.simulate.interiors.item import Item, item
from pcnn.simulate.interiors.paint import Palette
from pcnn.simulate.interiors.shapes import cushion, heap, lathe, painted, sheet, sloped
from pcnn.simulate.mesh import Mesh
from pcnn.simulate.primitives import box, boxes, tube

_CLUTTER = Element.CLUTTER
Small = Callable[[np.random.Generator, Palette], Item]


def monitor(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a screen on a stand."""
    width = float(rng.uniform(0.4, 0.65))
    height = width * float(rng.uniform(0.58, 0.75))
    raised = float(rng.uniform(0.1, 0.2))
    panel = sloped(
        boxes([[0, 0, raised + height / 2]], [width, 0.05, height]), 0, -0.08, (0, 0, raised)
    )
    stand = np.concatenate(
        [
            boxes([[0, 0.06, 0.012]], [0.26, 0.2, 0.02]),
            tube((0, 0.06, 0), (0, 0.03, raised + 0.1), 0.025),
        ]
    )
    return item(
        [painted(np.concatenate([panel, stand]), palette.dark(), _CLUTTER)],
        width,
        0.22,
        raised + height,
    )


def keyboard(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a keyboard with a mouse."""
    keys = np.concatenate(
        [
            boxes([[0, 0, 0.012]], [0.43, 0.15, 0.024]),
            cushion((0.3, 0, 0.018), (0.06, 0.11, 0.036), 0.7, 8),
        ]
    )
    return item([painted(keys, palette.dark(), _CLUTTER)], 0.66, 0.16, 0.03)


def laptop(rng: np.random.Generator, palette: Palette) -> Item:
    """Make an open laptop."""
    base = boxes([[0, 0, 0.01]], [0.34, 0.24, 0.02])
    lid = sloped(
        boxes([[0, 0.12, 0.12]], [0.34, 0.012, 0.23]),
        0,
        -float(rng.uniform(0.1, 0.5)),
        (0, 0.12, 0.01),
    )
    return item([painted(np.concatenate([base, lid]), palette.dark(), _CLUTTER)], 0.36, 0.36, 0.24)


def pile(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a pile of books or papers."""
    parts, z = [], 0.0
    for _ in range(int(rng.integers(1, 7))):
        size = rng.uniform((0.16, 0.2, 0.008), (0.23, 0.31, 0.045))
        centre = [*rng.uniform(-0.015, 0.015, 2), z + size[2] / 2]
        paint = palette.light() if rng.random() < 0.5 else palette.coloured()
        parts.append(
            painted(boxes([centre], size), paint, _CLUTTER).moved(0, 0, 0, rng.normal(0, 0.15))
        )
        z += float(size[2])
    return item(parts, 0.3, 0.34, z)


def cup(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a cup, a bottle or a vase."""
    radius, height = float(rng.uniform(0.03, 0.07)), float(rng.uniform(0.08, 0.32))
    neck = radius * float(rng.uniform(0.3, 1.1))
    outline = [(0, 0), (radius, 0), (radius, height * 0.6), (neck, height * 0.8), (neck, height)]
    return item(
        [painted(lathe(outline), palette.coloured(), _CLUTTER)], 2 * radius, 2 * radius, height
    )


def desk_lamp(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a table lamp with a shade or an arm."""
    foot = lathe([(0, 0), (0.09, 0), (0.09, 0.02), (0, 0.03)])
    height = float(rng.uniform(0.3, 0.5))
    if rng.random() < 0.5:
        stem = tube((0, 0, 0), (0, 0, height), 0.015)
        shade = lathe([(0.16, height - 0.12), (0.09, height + 0.12)])
    else:
        stem = np.concatenate(
            [
                tube((0, 0, 0), (0, 0.14, height * 0.8), 0.012),
                tube((0, 0.14, height * 0.8), (0, -0.12, height), 0.012),
            ]
        )
        shade = lathe([(0.03, 0.06), (0.08, -0.05)]) + np.array([0, -0.12, height])
    parts = [
        painted(np.concatenate([foot, stem]), palette.metal(), _CLUTTER),
        painted(shade, palette.muted(), _CLUTTER),
    ]
    return item(parts, 0.34, 0.34, height + 0.12)


def carton(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a box, closed or with its flaps up."""
    width, depth, height = (float(v) for v in rng.uniform((0.2, 0.16, 0.1), (0.55, 0.45, 0.45)))
    parts = [box((-width / 2, -depth / 2, 0), (width / 2, depth / 2, height))]
    if rng.random() < 0.4:
        flap = boxes([[0, -depth / 2, height + depth / 5]], [width, 0.006, depth / 2.5])
        parts.append(sloped(flap, 0, float(rng.uniform(0.3, 1.2)), (0, -depth / 2, height)))
    return item([painted(np.concatenate(parts), palette.wood(), _CLUTTER)], width, depth, height)


def bag(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a bag, a rucksack or a heap of clothes."""
    width, depth, height = (float(v) for v in rng.uniform((0.3, 0.2, 0.15), (0.6, 0.45, 0.45)))
    lump = heap(rng, (0, 0, height * 0.45), (width, depth, height), 0.35)
    return item([painted(lump, palette.fabric(), _CLUTTER)], width, depth, height)


def bin_(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a waste-paper basket."""
    radius, height = float(rng.uniform(0.12, 0.2)), float(rng.uniform(0.26, 0.6))
    outline = [
        (0, 0.01),
        (radius * 0.8, 0),
        (radius, height),
        (radius * 0.95, height),
        (radius * 0.7, 0.04),
        (0, 0.04),
    ]
    return item(
        [painted(lathe(outline), palette.muted(), _CLUTTER)], 2 * radius, 2 * radius, height
    )


def plant(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a pot plant of loose leaves."""
    height = float(rng.uniform(0.35, 1.6))
    radius = 0.09 + 0.07 * height
    pot = lathe([(0, 0.01), (radius * 0.7, 0), (radius, 0.22 * height), (0, 0.2 * height)])
    leaves = int(60 + 120 * height)
    centre = rng.normal(0, 1, (leaves, 3)) * np.array([0.16, 0.16, 0.2]) * (0.5 + 0.6 * height)
    centre[:, 2] = np.abs(centre[:, 2]) * 1.4 + 0.25 * height
    axes = rng.normal(0, 1, (leaves, 2, 3))
    axes *= rng.uniform(0.03, 0.09, (leaves, 1, 1)) / np.linalg.norm(axes, axis=2, keepdims=True)
    blades = np.stack([centre - axes[:, 0], centre + axes[:, 1] * 0.4, centre + axes[:, 0]], 1)
    stem = tube((0, 0, 0.1 * height), (0, 0, 0.5 * height), 0.012)
    parts = [
        painted(pot, palette.muted(), _CLUTTER),
        painted(stem, palette.wood(), _CLUTTER),
        painted(blades, palette.leaf(), _CLUTTER),
    ]
    return item(parts, 2.4 * radius, 2.4 * radius, height)


def standing_lamp(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a floor lamp."""
    height = float(rng.uniform(1.4, 1.75))
    body = np.concatenate(
        [
            lathe([(0, 0), (0.15, 0), (0.14, 0.03), (0, 0.04)]),
            tube((0, 0, 0), (0, 0, height), 0.014),
        ]
    )
    shade = lathe([(0.2, height - 0.18), (0.13, height + 0.12)])
    parts = [painted(body, palette.metal(), _CLUTTER), painted(shade, palette.muted(), _CLUTTER)]
    return item(parts, 0.4, 0.4, height + 0.12)


def coat_stand(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a coat stand with coats."""
    pole = np.concatenate(
        [tube((0, 0, 0), (0, 0, 1.75), 0.02), lathe([(0, 0), (0.2, 0), (0.18, 0.04), (0, 0.05)])]
    )
    parts = [painted(pole, palette.wood(), _CLUTTER)]
    for turn in rng.uniform(0, 2 * np.pi, int(rng.integers(1, 4))):
        coat = heap(rng, (0.14 * np.cos(turn), 0.14 * np.sin(turn), 1.2), (0.4, 0.26, 0.95), 0.25)
        parts.append(painted(coat, palette.fabric(), _CLUTTER))
    return item(parts, 0.6, 0.6, 1.75)


def picture(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a framed picture, a poster or a clock; its back is the plane y = 0, its middle z = 0."""
    width, height = (float(v) for v in rng.uniform((0.25, 0.25), (1.0, 0.8)))
    frame = boxes([[0, -0.012, 0]], [width, 0.024, height])
    inner = boxes([[0, -0.026, 0]], [width - 0.06, 0.006, height - 0.06])
    parts = [painted(frame, palette.wood(), _CLUTTER), painted(inner, palette.coloured(), _CLUTTER)]
    return item(parts, width, 0.03, height)


def curtain(rng: np.random.Generator, palette: Palette, width: float, height: float) -> Mesh:
    """Make a curtain in the plane y = 0, its upper edge at z = 0."""
    cloth = sheet(rng, width, height, max(int(width / 0.14), 2), float(rng.uniform(0.02, 0.05)))
    return painted(cloth, palette.fabric(), _CLUTTER)


def wall_shelf(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a board with books on a wall (class bookcase); its back is y = 0, its board z = 0."""
    width = float(rng.uniform(0.6, 1.2))
    plank = painted(boxes([[0, -0.12, 0]], [width, 0.24, 0.025]), palette.wood(), Element.BOOKCASE)
    row = books(rng, palette, -width / 2, width / 2, 0.013, 0.34, Element.BOOKCASE)
    return item([plank, *(mesh.moved(0, -0.22) for mesh in row)], width, 0.24, 0.35)


#: makers of small things and their shares
Choice = tuple[tuple[Small, float], ...]
ON_DESK: Choice = (
    (monitor, 0.28),
    (keyboard, 0.14),
    (laptop, 0.10),
    (pile, 0.24),
    (cup, 0.12),
    (desk_lamp, 0.06),
    (carton, 0.06),
)
ON_TABLE: Choice = ((pile, 0.30), (cup, 0.40), (laptop, 0.12), (carton, 0.08), (bag, 0.10))
ON_FLOOR: Choice = (
    (carton, 0.28),
    (bag, 0.22),
    (bin_, 0.20),
    (plant, 0.14),
    (pile, 0.06),
    (standing_lamp, 0.05),
    (coat_stand, 0.05),
)


def draw(rng: np.random.Generator, palette: Palette, choice: Choice) -> Item:
    """Draw one thing of a list of makers and shares."""
    shares = np.array([share for _, share in choice])
    return choice[int(rng.choice(len(choice), p=shares / shares.sum()))][0](rng, palette)


def laid(
    rng: np.random.Generator,
    palette: Palette,
    base: Item,
    choice: Choice,
    count: int,
) -> list[Mesh]:
    """Lay small things on an item's surface where they find room; they keep clear of each other."""
    if base.surface is None:
        raise ValueError("nothing can be laid on an item without a surface")
    meshes: list[Mesh] = []
    taken: list[tuple[float, float, float]] = []
    for _ in range(count):
        thing = draw(rng, palette, choice)
        reach = max(thing.width, thing.depth) / 2
        span = (base.width / 2 - thing.width / 2, base.depth / 2 - thing.depth / 2)
        if min(span) <= 0:
            continue
        x, y = (float(rng.uniform(-limit, limit)) for limit in span)
        if all((x - a) ** 2 + (y - b) ** 2 > (0.8 * (reach + r)) ** 2 for a, b, r in taken):
            taken.append((x, y, reach))
            meshes.append(thing.mesh.moved(x, y, base.surface, float(rng.normal(0, 0.2))))
    return meshes
