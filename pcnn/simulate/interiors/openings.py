"""Doors, windows and boards, as seen on a wall: y = 0 is the wall's face, +y lies behind it."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.interiors.classes import Element
from pcnn.simulate.interiors.clutter import curtain
from pcnn.simulate.interiors.paint import Palette
from pcnn.simulate.interiors.shapes import painted, sloped
from pcnn.simulate.mesh import Floats, Mesh, join
from pcnn.simulate.primitives import box, boxes, quads, tube

REVEAL = 0.14  # [m] depth of an opening


def _lining(width: float, low: float, high: float, bottom: bool) -> Floats:
    """The inner faces of an opening."""
    half = width / 2
    faces = [
        [(s * half, 0, low), (s * half, REVEAL, low), (s * half, REVEAL, high), (s * half, 0, high)]
        for s in (-1, 1)
    ]
    for z in (low, high) if bottom else (high,):
        faces.append([(-half, 0, z), (half, 0, z), (half, REVEAL, z), (-half, REVEAL, z)])
    return quads(faces)


def _surround(width: float, low: float, high: float, bottom: bool) -> Floats:
    """The frame on the wall around an opening."""
    side = boxes(
        [[s * (width / 2 + 0.03), -0.01, (low + high) / 2] for s in (-1, 1)],
        [0.06, 0.03, high - low],
    )
    levels = [high + 0.03, low - 0.02] if bottom else [high + 0.03]
    return np.concatenate(
        [side, boxes([[0, -0.01, z] for z in levels], [width + 0.12, 0.035, 0.06])]
    )


def door(
    rng: np.random.Generator, palette: Palette, width: float, height: float, opening: float
) -> Mesh:
    """Make a door in its frame.

    Args:
        rng: random stream.
        palette: of the room.
        width: of the opening [m].
        height: of the opening [m].
        opening: angle by which the leaf stands open into the room [rad]; 0 is shut.
    """
    label = Element.DOOR
    paint = palette.wood() if rng.random() < 0.6 else palette.muted()
    leaf = boxes([[0, 0.06, height / 2]], [width - 0.02, 0.045, height - 0.02])
    panels = boxes(
        [[0, 0.034, height * s] for s in (0.27, 0.72)], [width * 0.7, 0.012, height * 0.34]
    )
    x = 0.4 * width
    grip = np.concatenate(
        [
            tube((x, 0.03, 1.02), (x, -0.03, 1.02), 0.012),
            tube((x, -0.03, 1.02), (x - 0.12, -0.03, 1.02), 0.011),
        ]
    )
    moving = [leaf, panels] if rng.random() < 0.5 else [leaf]
    hinge = (-width / 2, 0.0, 0.0)
    turned = [painted(sloped(np.concatenate(moving), 2, -opening, hinge), paint, label)]
    turned.append(painted(sloped(grip, 2, -opening, hinge), palette.metal(), label))
    frame = np.concatenate([_lining(width, 0, height, False), _surround(width, 0, height, False)])
    parts = [painted(frame, paint, label), *turned]
    if opening > 0:  # the next room: a piece of floor and a wall
        far = quads([[(-2, 1.8, 0), (2, 1.8, 0), (2, 1.8, 2.6), (-2, 1.8, 2.6)]])
        ground = quads([[(-2, 0, 0), (2, 0, 0), (2, 1.8, 0), (-2, 1.8, 0)]])
        parts.append(painted(far, palette.light(), Element.WALL))
        parts.append(painted(ground, palette.muted(), Element.FLOOR))
    return join(parts)


def window(
    rng: np.random.Generator, palette: Palette, width: float, low: float, high: float
) -> Mesh:
    """Make a window with its frame, sill, blind or curtains."""
    label = Element.WINDOW
    paint = palette.light() if rng.random() < 0.6 else palette.wood()
    mid = (low + high) / 2
    wings = max(round(width / 0.8), 1)
    posts = np.linspace(-width / 2, width / 2, wings + 1)
    bars = boxes([[float(x), REVEAL - 0.02, mid] for x in posts], [0.06, 0.05, high - low])
    rails = boxes([[0, REVEAL - 0.02, z] for z in (low, high)], [width, 0.05, 0.07])
    sill = box((-width / 2 - 0.08, -0.12, low - 0.04), (width / 2 + 0.08, 0.05, low))
    frame = [bars, rails, sill, _lining(width, low, high, True), _surround(width, low, high, False)]
    pane = boxes([[0, REVEAL - 0.01, mid]], [width, 0.008, high - low])
    parts = [painted(np.concatenate(frame), paint, label), painted(pane, palette.glass(), label)]
    cover = rng.random()
    if cover < 0.45:  # venetian blind, partly drawn
        bottom = high - (high - low) * float(rng.uniform(0.2, 1.0))
        levels = np.arange(bottom, high, 0.045)
        slats = [
            sloped(
                boxes([[0, -0.02, float(z)]], [width, 0.045, 0.003]), 0, 0.6, (0, -0.02, float(z))
            )
            for z in levels
        ]
        if slats:
            parts.append(painted(np.concatenate(slats), palette.light(), label))
    elif cover < 0.8:
        each = width * float(rng.uniform(0.2, 0.4))
        drop = high + 0.12 - (0.03 if rng.random() < 0.7 else low - 0.15)
        for side in (-1, 1):
            cloth = curtain(rng, palette, each, drop)
            parts.append(cloth.moved(side * (width / 2 + 0.1 - each / 2), -0.16, high + 0.12))
        rod = tube(
            (-width / 2 - 0.25, -0.16, high + 0.13), (width / 2 + 0.25, -0.16, high + 0.13), 0.014
        )
        parts.append(painted(rod, palette.metal(), Element.CLUTTER))
    return join(parts)


def board(rng: np.random.Generator, palette: Palette, width: float, height: float) -> Mesh:
    """Make a white, black or pin board with its frame, middle at z = 0."""
    kind = rng.random()
    face = palette.ceramic() if kind < 0.6 else palette.dark() if kind < 0.75 else palette.muted()
    plate = boxes([[0, -0.015, 0]], [width, 0.03, height])
    bars = np.concatenate(
        [
            boxes([[0, -0.02, s * height / 2] for s in (-1, 1)], [width + 0.03, 0.04, 0.03]),
            boxes([[s * width / 2, -0.02, 0] for s in (-1, 1)], [0.03, 0.04, height]),
            boxes([[0, -0.05, -height / 2 - 0.01]], [width * 0.5, 0.08, 0.02]),
        ]
    )
    return join(
        [painted(plate, face, Element.BOARD), painted(bars, palette.metal(), Element.BOARD)]
    )
