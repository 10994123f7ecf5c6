"""Bookcases, shelves, cabinets and wardrobes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pcnn.simulate.interiors.classes import Element
from pcnn.simulate.interiors.item import Item, item
from pcnn.simulate.interiors.paint import Palette
from pcnn.simulate.interiors.shapes import painted
from pcnn.simulate.mesh import Mesh
from pcnn.simulate.primitives import box, boxes

_BOOKCASE, _CLUTTER = Element.BOOKCASE, Element.CLUTTER


def books(
    rng: np.random.Generator,
    palette: Palette,
    x0: float,
    x1: float,
    z: float,
    room: float,
    label: Element,
) -> list[Mesh]:
    """Stand books on a shelf from x0 to x1 at height z, spines to -y at y = 0, with gaps."""
    count = max(int((x1 - x0) / 0.03), 1)
    widths = rng.uniform(0.012, 0.055, count)
    ends = x0 + np.cumsum(widths)
    fill = x0 + (x1 - x0) * rng.uniform(0.3, 1.0)
    keep = (ends < fill) & (rng.random(count) > 0.06)
    heights = np.minimum(rng.uniform(0.17, 0.32, count), room - 0.02)
    depths = rng.uniform(0.13, 0.22, count)
    pick = rng.integers(0, 4, count)
    meshes = []
    for shade in range(4):
        chosen = keep & (pick == shade)
        if chosen.any():
            centre = np.stack([ends - widths / 2, depths / 2, z + heights / 2], 1)[chosen]
            size = np.stack([widths * 0.94, depths, heights], 1)[chosen]
            meshes.append(painted(boxes(centre, size), palette.coloured(), label))
    return meshes


def bookcase(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a bookcase with books, boxes and empty boards."""
    width, depth = float(rng.uniform(0.6, 1.3)), float(rng.uniform(0.26, 0.38))
    height = float(rng.choice([0.8, 1.2, 1.8, 2.0, 2.2])) * float(rng.uniform(0.95, 1.05))
    wood = palette.wood() if rng.random() < 0.7 else palette.light()
    boards = max(round(height / rng.uniform(0.32, 0.42)), 2)
    levels = np.linspace(0.06, height - 0.02, boards + 1)
    planks = boxes([[0, 0, z] for z in levels], [width, depth, 0.022])
    sides = boxes([[s * width / 2, 0, height / 2] for s in (-1, 1)], [0.022, depth, height])
    back = boxes([[0, depth / 2 - 0.005, height / 2]], [width, 0.01, height])
    parts = [painted(np.concatenate([planks, sides, back]), wood, _BOOKCASE)]
    for low, high in pairwise(levels):
        room, z = float(high - low) - 0.022, float(low) + 0.011
        use = rng.random()
        if use < 0.65:
            row = books(rng, palette, -width / 2 + 0.02, width / 2 - 0.02, z, room, _BOOKCASE)
            parts += [mesh.moved(0, -depth / 2 + float(rng.uniform(0.02, 0.07))) for mesh in row]
        elif use < 0.85:
            size = rng.uniform(
                (0.15, 0.15, 0.08), (min(0.4, width - 0.1), depth - 0.04, room - 0.03)
            )
            x = float(rng.uniform(-1, 1)) * (width - size[0] - 0.06) / 2
            parts.append(
                painted(boxes([[x, 0, z + size[2] / 2]], size), palette.muted(), _BOOKCASE)
            )
    return item(parts, width + 0.02, depth, height, surface=height if height < 1.4 else None)


def cabinet(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a filing cabinet, a cupboard or a wardrobe with doors or drawers (class clutter)."""
    kind = str(rng.choice(["file", "cupboard", "wardrobe"]))
    low, high = {
        "file": ((0.4, 0.5, 0.7), (0.5, 0.65, 1.35)),
        "cupboard": ((0.8, 0.35, 0.75), (1.6, 0.5, 1.3)),
        "wardrobe": ((0.8, 0.5, 1.8), (1.2, 0.62, 2.15)),
    }[kind]
    width, depth, height = (float(v) for v in rng.uniform(low, high))
    paint = palette.metal() if kind == "file" or rng.random() < 0.3 else palette.wood()
    body = box((-width / 2, -depth / 2 + 0.02, 0.05), (width / 2, depth / 2, height))
    if kind == "file":
        rows = max(round(height / 0.33), 2)
        each = (height - 0.08) / rows
        centres = [[0, -depth / 2 + 0.01, 0.06 + each * (i + 0.5)] for i in range(rows)]
        fronts = boxes(centres, [width - 0.02, 0.025, each - 0.015])
        grips = boxes(
            [[0, -depth / 2 - 0.012, c[2] + each * 0.3] for c in centres], [0.12, 0.025, 0.02]
        )
    else:
        doors = 2 if width < 1.3 else 3
        each = width / doors
        x = (np.arange(doors) - (doors - 1) / 2) * each
        centres = [[float(a), -depth / 2 + 0.01, height / 2 + 0.03] for a in x]
        fronts = boxes(centres, [each - 0.012, 0.022, height - 0.1])
        grips = boxes(
            [[c[0] + each * 0.4, -depth / 2 - 0.015, height * 0.55] for c in centres],
            [0.015, 0.03, 0.14],
        )
    parts = [
        painted(np.concatenate([body, fronts]), paint, _CLUTTER),
        painted(grips, palette.metal(), _CLUTTER),
    ]
    return item(parts, width, depth + 0.04, height, surface=height if height < 1.45 else None)


def rack(rng: np.random.Generator, palette: Palette) -> Item:
    """Make an open metal rack full of boxes, as in a storage room."""
    width, depth = float(rng.uniform(0.9, 1.6)), float(rng.uniform(0.4, 0.6))
    height = float(rng.uniform(1.6, 2.2))
    levels = np.linspace(0.12, height - 0.05, int(rng.integers(4, 6)))
    posts = boxes(
        [[sx * width / 2, sy * depth / 2, height / 2] for sx in (-1, 1) for sy in (-1, 1)],
        [0.035, 0.035, height],
    )
    planks = boxes([[0, 0, z] for z in levels], [width, depth, 0.03])
    parts = [painted(np.concatenate([posts, planks]), palette.metal(), _BOOKCASE)]
    for low, high in pairwise(levels):
        x = -width / 2 + 0.05
        while x < width / 2 - 0.2:
            size = rng.uniform((0.14, 0.2, 0.08), (0.45, depth, float(high - low) - 0.05))
            if rng.random() < 0.75 and x + size[0] < width / 2:
                centre = [
                    x + size[0] / 2,
                    float(rng.uniform(-0.04, 0.04)),
                    low + 0.015 + size[2] / 2,
                ]
                parts.append(painted(boxes([centre], size), palette.muted(), _CLUTTER))
            x += float(size[0]) + float(rng.uniform(0.01, 0.12))
    return item(parts, width + 0.04, depth + 0.04, height)
