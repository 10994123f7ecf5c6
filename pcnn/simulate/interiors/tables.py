"""Desks, tables and counters."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.interiors.classes import Element
from pcnn.simulate.interiors.item import Item, item
from pcnn.simulate.interiors.paint import Palette
from pcnn.simulate.interiors.shapes import cushion, painted
from pcnn.simulate.mesh import Floats
from pcnn.simulate.primitives import box, boxes, tube

_TABLE = Element.TABLE


def _legs(width: float, depth: float, height: float, thick: float) -> Floats:
    x, y = width / 2 - 0.05, depth / 2 - 0.05
    centres = [[sx * x, sy * y, height / 2] for sx in (-1, 1) for sy in (-1, 1)]
    return boxes(centres, [thick, thick, height])


def desk(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a desk: legs or side panels, perhaps drawers, a back panel or a screen."""
    width, depth = float(rng.uniform(1.1, 1.9)), float(rng.uniform(0.6, 0.85))
    height = float(rng.uniform(0.70, 0.76))
    top = palette.wood() if rng.random() < 0.6 else palette.light()
    body = palette.metal() if rng.random() < 0.5 else top
    parts = [painted(boxes([[0, 0, height - 0.015]], [width, depth, 0.03]), top, _TABLE)]
    if rng.random() < 0.5:
        parts.append(painted(_legs(width, depth, height - 0.03, 0.045), body, _TABLE))
    else:
        sides = boxes(
            [[s * (width / 2 - 0.015), 0, height / 2 - 0.02] for s in (-1, 1)],
            [0.03, depth - 0.06, height - 0.04],
        )
        back = boxes([[0, depth / 2 - 0.08, height * 0.62]], [width - 0.06, 0.02, height * 0.6])
        parts.append(painted(np.concatenate([sides, back]), body, _TABLE))
    if rng.random() < 0.7:
        side = float(rng.choice([-1, 1]))
        x = side * (width / 2 - 0.27)
        chest = boxes([[x, 0.02, 0.33]], [0.4, depth - 0.1, 0.56])
        gaps = boxes([[x, -depth / 2 + 0.055, z] for z in (0.15, 0.34, 0.52)], [0.36, 0.03, 0.15])
        parts.append(painted(np.concatenate([chest, gaps]), body, _TABLE))
    return item(parts, width, depth, height, surface=height)


def table(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a dining or work table, round or rectangular."""
    height = float(rng.uniform(0.71, 0.77))
    top = palette.wood() if rng.random() < 0.65 else palette.light()
    if rng.random() < 0.35:
        size = float(rng.uniform(0.75, 1.25))
        plate = tube((0, 0, height - 0.03), (0, 0, height), size / 2, sides=24)
        stem = [
            tube((0, 0, 0.02), (0, 0, height), 0.04),
            tube((0, 0, 0), (0, 0, 0.03), size * 0.28, sides=18),
        ]
        parts = [
            painted(plate, top, _TABLE),
            painted(np.concatenate(stem), palette.metal(), _TABLE),
        ]
        return item(parts, size * 0.75, size * 0.75, height, surface=height)
    width, depth = float(rng.uniform(1.1, 2.0)), float(rng.uniform(0.7, 1.0))
    plate = boxes([[0, 0, height - 0.02]], [width, depth, 0.04])
    legs = _legs(width, depth, height - 0.04, float(rng.uniform(0.04, 0.08)))
    return item([painted(np.concatenate([plate, legs]), top, _TABLE)], width, depth, height, height)


def conference_table(rng: np.random.Generator, palette: Palette, length: float) -> Item:
    """Make a long table with rounded corners on two feet."""
    depth, height = float(rng.uniform(1.0, 1.4)), 0.74
    plate = cushion((0, 0, height), (length, depth, 0.05), float(rng.uniform(0.15, 0.5)), sides=24)
    feet = boxes([[s * length * 0.3, 0, height / 2] for s in (-1, 1)], [0.12, depth * 0.5, height])
    parts = [painted(plate, palette.wood(), _TABLE), painted(feet, palette.wood(), _TABLE)]
    return item(parts, length, depth, height, surface=height + 0.025)


def coffee_table(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a low table with a shelf."""
    width, depth = float(rng.uniform(0.7, 1.2)), float(rng.uniform(0.45, 0.7))
    height = float(rng.uniform(0.36, 0.46))
    plates = boxes(
        [[0, 0, height - 0.02], [0, 0, 0.14]],
        [[width, depth, 0.04], [width - 0.1, depth - 0.1, 0.02]],
    )
    legs = _legs(width, depth, height, 0.05)
    parts = [painted(np.concatenate([plates, legs]), palette.wood(), _TABLE)]
    return item(parts, width, depth, height, surface=height)


def side_table(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a night stand or a low chest."""
    width, depth = float(rng.uniform(0.4, 0.6)), float(rng.uniform(0.35, 0.5))
    height = float(rng.uniform(0.42, 0.62))
    body = box((-width / 2, -depth / 2, 0.06), (width / 2, depth / 2, height))
    fronts = boxes(
        [[0, -depth / 2 - 0.008, height * share] for share in (0.35, 0.72)],
        [width - 0.06, 0.02, height * 0.3],
    )
    paint = palette.wood()
    parts = [painted(np.concatenate([body, fronts]), paint, _TABLE)]
    return item(parts, width, depth, height, surface=height)


def counter(rng: np.random.Generator, palette: Palette, width: float) -> Item:
    """Make a reception desk or a counter with a raised front."""
    depth, height = float(rng.uniform(0.6, 0.75)), float(rng.uniform(0.85, 1.05))
    body = box((-width / 2, -depth / 2 + 0.05, 0.08), (width / 2, depth / 2, height - 0.03))
    top = box((-width / 2 - 0.02, -depth / 2, height - 0.03), (width / 2 + 0.02, depth / 2, height))
    parts = [
        painted(body, palette.wood() if rng.random() < 0.5 else palette.light(), _TABLE),
        painted(top, palette.muted(), _TABLE),
    ]
    return item(parts, width, depth, height, surface=height)
