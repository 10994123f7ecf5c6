"""Sanitary ware, kitchen lines and machines: class clutter, as in S3DIS."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.interiors.classes import Element
from pcnn.simulate.interiors.item import Item, item
from pcnn.simulate.interiors.paint import Palette
from pcnn.simulate.interiors.shapes import cushion, lathe, painted
from pcnn.simulate.primitives import box, boxes, tube

_CLUTTER = Element.CLUTTER
_BOWL = [
    (0.0, 0.28),
    (0.08, 0.28),
    (0.15, 0.36),
    (0.18, 0.40),
    (0.20, 0.40),
    (0.19, 0.30),
    (0.12, 0.0),
]
_BASIN = [
    (0.0, -0.12),
    (0.12, -0.11),
    (0.2, -0.03),
    (0.22, 0.0),
    (0.25, 0.0),
    (0.22, -0.12),
    (0.1, -0.2),
]


def toilet(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a toilet with its cistern."""
    bowl = lathe(_BOWL, sides=18) * np.array([1.0, 1.25, 1.0])
    tank = cushion((0, 0.28, 0.62), (0.38, 0.17, 0.38), 0.15)
    lid = cushion((0, 0.14, 0.55), (0.37, 0.06, 0.4), 0.5) if rng.random() < 0.5 else tank[:0]
    stand = boxes([[0, 0.2, 0.2]], [0.22, 0.3, 0.4])
    ware = np.concatenate([bowl, tank, lid, stand])
    return item([painted(ware, palette.ceramic(), _CLUTTER)], 0.42, 0.74, 0.82)


def washbasin(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a basin on a pedestal or in a cupboard, with a tap and a mirror above it."""
    height = float(rng.uniform(0.8, 0.88))
    bowl = lathe(_BASIN, sides=18) + np.array([0, 0, height])
    tap = np.concatenate(
        [
            tube((0, 0.2, height), (0, 0.2, height + 0.16), 0.014),
            tube((0, 0.2, height + 0.16), (0, 0.08, height + 0.13), 0.012),
        ]
    )
    parts = [painted(tap, palette.metal(), _CLUTTER)]
    if rng.random() < 0.5:
        parts.append(painted(bowl, palette.ceramic(), _CLUTTER))
        foot = tube((0, 0.05, 0), (0, 0.05, height - 0.15), 0.09, 0.07, sides=10)
        parts.append(painted(foot, palette.ceramic(), _CLUTTER))
        width = 0.52
    else:
        width = float(rng.uniform(0.6, 1.1))
        rim = np.concatenate(
            [
                boxes(
                    [[s * (width / 4 + 0.11), 0, height - 0.015] for s in (-1, 1)],
                    [width / 2 - 0.22, 0.5, 0.03],
                ),
                boxes([[0, s * 0.235, height - 0.015] for s in (-1, 1)], [0.5, 0.03, 0.03]),
            ]
        )
        chest = box((-width / 2, -0.22, 0.12), (width / 2, 0.25, height - 0.22))
        parts.append(painted(np.concatenate([bowl, rim]), palette.ceramic(), _CLUTTER))
        parts.append(painted(chest, palette.wood(), _CLUTTER))
    mirror = boxes([[0, 0.25, height + 0.7]], [width * 0.95, 0.012, 0.75])
    parts.append(painted(mirror, palette.mirror(), _CLUTTER))
    return item(parts, width, 0.52, height)


def bathtub(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a bathtub: a box with a rounded hollow."""
    length, depth, height = float(rng.uniform(1.5, 1.75)), float(rng.uniform(0.7, 0.8)), 0.56
    sides = np.concatenate(
        [
            boxes(
                [[s * (length / 2 - 0.03), 0, height / 2] for s in (-1, 1)], [0.06, depth, height]
            ),
            boxes(
                [[0, s * (depth / 2 - 0.03), height / 2] for s in (-1, 1)], [length, 0.06, height]
            ),
        ]
    )
    hollow = cushion((0, 0, height), (length - 0.1, depth - 0.1, 0.85), 0.4, sides=20)
    hollow = hollow[hollow[..., 2].max(1) <= height + 1e-6]
    ware = np.concatenate([sides, hollow])
    return item([painted(ware, palette.ceramic(), _CLUTTER)], length, depth, height)


def kitchen_line(rng: np.random.Generator, palette: Palette, width: float) -> Item:
    """Make base units with a worktop and a sink, and wall units above them."""
    top, depth = 0.9, 0.6
    front = palette.light() if rng.random() < 0.5 else palette.wood()
    count = max(round(width / 0.6), 1)
    each = width / count
    x = (np.arange(count) - (count - 1) / 2) * each
    doors = boxes([[float(a), -depth / 2 + 0.03, 0.47] for a in x], [each - 0.015, 0.03, 0.72])
    body = box((-width / 2, -depth / 2 + 0.04, 0.1), (width / 2, depth / 2, top - 0.04))
    wall_units = box((-width / 2, depth / 2 - 0.33, 1.42), (width / 2, depth / 2, 2.1))
    wall_doors = boxes([[float(a), depth / 2 - 0.34, 1.76] for a in x], [each - 0.015, 0.025, 0.64])
    grips = boxes(
        [[float(a) + each * 0.38, -depth / 2 + 0.005, 0.72] for a in x], [0.02, 0.03, 0.14]
    )
    worktop = box((-width / 2, -depth / 2, top - 0.04), (width / 2, depth / 2, top))
    sink_x = float(rng.choice(x))
    tap = np.concatenate(
        [
            tube((sink_x, 0.18, top), (sink_x, 0.18, top + 0.25), 0.014),
            tube((sink_x, 0.18, top + 0.25), (sink_x, 0.02, top + 0.2), 0.012),
            boxes([[sink_x, 0.0, top + 0.004]], [0.42, 0.36, 0.01]),
        ]
    )
    parts = [
        painted(np.concatenate([body, doors, wall_units, wall_doors]), front, _CLUTTER),
        painted(worktop, palette.muted(), _CLUTTER),
        painted(np.concatenate([tap, grips]), palette.metal(), _CLUTTER),
    ]
    return item(parts, width, depth + 0.02, 2.1, surface=top)


def fridge(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a refrigerator or a vending machine."""
    width, height = float(rng.uniform(0.55, 0.95)), float(rng.uniform(1.4, 1.95))
    split = height * float(rng.uniform(0.55, 0.7))
    paint = palette.ceramic() if rng.random() < 0.5 else palette.metal()
    body = box((-width / 2, -0.28, 0.04), (width / 2, 0.33, height))
    doors = np.concatenate(
        [
            box((-width / 2, -0.34, 0.06), (width / 2, -0.285, split - 0.006)),
            box((-width / 2, -0.34, split + 0.006), (width / 2, -0.285, height)),
        ]
    )
    grips = boxes([[width * 0.4, -0.365, split + s * 0.25] for s in (-1, 1)], [0.025, 0.04, 0.3])
    parts = [
        painted(np.concatenate([body, doors]), paint, _CLUTTER),
        painted(grips, palette.metal(), _CLUTTER),
    ]
    return item(parts, width, 0.70, height)


def copier(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a copying machine with trays."""
    width, depth = float(rng.uniform(0.6, 1.1)), float(rng.uniform(0.6, 0.75))
    light, dark = palette.light(), palette.dark()
    body = box((-width / 2, -depth / 2 + 0.05, 0.06), (width / 2, depth / 2, 0.88))
    head = box((-width / 2, -depth / 2 + 0.12, 0.93), (width / 2, depth / 2, 1.1))
    drawers = boxes(
        [[0, -depth / 2 + 0.04, z] for z in (0.2, 0.38, 0.56)], [width - 0.1, 0.03, 0.15]
    )
    tray = boxes([[width / 2 + 0.12, 0, 0.72]], [0.26, 0.4, 0.02])
    panel = boxes([[width * 0.25, -depth / 2 + 0.1, 1.02]], [0.25, 0.16, 0.03])
    parts = [
        painted(np.concatenate([body, head, tray]), light, _CLUTTER),
        painted(np.concatenate([drawers, panel]), dark, _CLUTTER),
    ]
    return item(parts, width + 0.4, depth, 1.1)


def radiator(rng: np.random.Generator, palette: Palette, width: float) -> Item:
    """Make a ribbed radiator to stand under a window."""
    height = float(rng.uniform(0.45, 0.65))
    ribs = np.arange(-width / 2, width / 2, 0.06)
    bars = boxes([[float(x), 0, 0.12 + height / 2] for x in ribs], [0.045, 0.09, height])
    return item([painted(bars, palette.light(), _CLUTTER)], width, 0.12, height + 0.12)
