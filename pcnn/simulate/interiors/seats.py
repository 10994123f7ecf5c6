"""Chairs, stools, sofas, beds and rows of seats."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.interiors.classes import Element
from pcnn.simulate.interiors.item import Item, item
from pcnn.simulate.interiors.paint import Palette
from pcnn.simulate.interiors.shapes import cushion, painted, sloped
from pcnn.simulate.mesh import Mesh, join
from pcnn.simulate.primitives import boxes, tube

_CHAIR, _SOFA = Element.CHAIR, Element.SOFA


def office_chair(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a swivel chair on five castors."""
    cloth, plastic = palette.fabric(), palette.dark()
    seat = float(rng.uniform(0.43, 0.52))
    width = float(rng.uniform(0.46, 0.54))
    back = float(rng.uniform(0.42, 0.70))
    lean = float(rng.uniform(0.05, 0.25))
    parts = [painted(cushion((0, 0, seat), (width, 0.48, 0.09)), cloth, _CHAIR)]
    rest = cushion((0, 0.24, seat + 0.12 + back / 2), (width * 0.92, 0.08, back))
    parts.append(painted(sloped(rest, 0, -lean, (0, 0.24, seat)), cloth, _CHAIR))
    bars = [
        tube((0, 0, 0.12), (0, 0, seat), 0.03),
        tube((0, 0.2, seat), (0, 0.28, seat + 0.3), 0.025),
    ]
    for turn in np.arange(5) * (2 * np.pi / 5) + rng.uniform(0, 1.2):
        foot = (0.29 * np.cos(turn), 0.29 * np.sin(turn))
        bars.append(tube((0, 0, 0.13), (*foot, 0.08), 0.022, 0.015, sides=5))
        bars.append(tube((foot[0], foot[1] - 0.02, 0.03), (foot[0], foot[1] + 0.02, 0.03), 0.03))
    if rng.random() < 0.6:
        for side in (-1, 1):
            x = side * width / 2
            bars.append(tube((x, 0.1, seat), (x, 0.1, seat + 0.2), 0.018, sides=5))
            bars.append(boxes([[x, 0.02, seat + 0.21]], [0.06, 0.26, 0.03]))
    parts.append(painted(np.concatenate(bars), plastic, _CHAIR))
    return item(parts, 0.62, 0.62, seat + back + 0.12)


def chair(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a chair on four legs: wood, or padded with a metal frame."""
    wooden = rng.random() < 0.5
    frame = palette.wood() if wooden else palette.metal()
    cover = frame if wooden and rng.random() < 0.6 else palette.fabric()
    seat, width = float(rng.uniform(0.42, 0.48)), float(rng.uniform(0.40, 0.48))
    back = float(rng.uniform(0.32, 0.48))
    thick = 0.035 if wooden else 0.055
    depth = width * float(rng.uniform(0.95, 1.1))
    x, y = width / 2 - 0.03, depth / 2 - 0.03
    legs = [
        tube((sx * x * 1.05, sy * y * 1.05, 0), (sx * x, sy * y, seat), 0.018, sides=6)
        for sx in (-1, 1)
        for sy in (-1, 1)
    ]
    posts = [tube((s * x, y, seat), (s * x, y + 0.07, seat + back), 0.016) for s in (-1, 1)]
    parts = [painted(np.concatenate(legs + posts), frame, _CHAIR)]
    parts.append(painted(cushion((0, 0, seat), (width, depth, thick), 0.25), cover, _CHAIR))
    if wooden and rng.random() < 0.5:  # rungs
        levels = np.linspace(0.35, 1.0, 3) * back + seat
        rungs = [boxes([[0, y + 0.06, z]], [width - 0.04, 0.02, 0.06]) for z in levels]
        parts.append(painted(np.concatenate(rungs), frame, _CHAIR))
    else:
        rest = cushion((0, y + 0.05, seat + back * 0.68), (width, 0.04, back * 0.62), 0.25)
        parts.append(painted(sloped(rest, 0, -0.12, (0, y, seat)), cover, _CHAIR))
    return item(parts, width + 0.06, depth + 0.14, seat + back)


def stool(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a stool or an upholstered cube."""
    if rng.random() < 0.5:
        side, height = float(rng.uniform(0.38, 0.5)), float(rng.uniform(0.38, 0.46))
        block = cushion((0, 0, height / 2), (side, side, height), 0.15)
        return item([painted(block, palette.fabric(), _CHAIR)], side, side, height)
    height = float(rng.choice([0.45, 0.65, 0.75]))
    legs = [
        tube(
            (0.19 * np.cos(a), 0.19 * np.sin(a), 0),
            (0.1 * np.cos(a), 0.1 * np.sin(a), height),
            0.014,
        )
        for a in np.arange(4) * np.pi / 2 + 0.7
    ]
    return item(
        [
            painted(np.concatenate(legs), palette.metal(), _CHAIR),
            painted(cushion((0, 0, height), (0.36, 0.36, 0.06), 0.6), palette.fabric(), _CHAIR),
        ],
        0.42,
        0.42,
        height,
    )


def sofa(rng: np.random.Generator, palette: Palette) -> Item:
    """Make an armchair or a sofa of up to three seats with loose pillows."""
    seats = int(rng.integers(1, 4))
    cloth = palette.fabric()
    each, arm = float(rng.uniform(0.58, 0.7)), float(rng.uniform(0.12, 0.22))
    depth, seat = float(rng.uniform(0.78, 0.95)), float(rng.uniform(0.38, 0.46))
    back = float(rng.uniform(0.32, 0.45))
    inner = seats * each
    width = inner + 2 * arm
    base = boxes([[0, 0, 0.5 * (seat - 0.14) + 0.05]], [width, depth, seat - 0.14])
    arms = [
        cushion((s * (inner + arm) / 2, 0, seat * 0.72), (arm, depth, seat * 1.1), 0.25)
        for s in (-1, 1)
    ]
    rest = cushion((0, depth / 2 - 0.11, (seat + back) / 2), (width, 0.22, seat + back), 0.2)
    soft = []
    for place in range(seats):
        x = (place - (seats - 1) / 2) * each
        soft.append(cushion((x, -0.06, seat - 0.04), (each * 0.98, depth - 0.2, 0.18), 0.3))
        leaning = cushion((x, depth / 2 - 0.27, seat + back * 0.5), (each * 0.95, 0.16, back), 0.4)
        soft.append(sloped(leaning, 0, -0.18, (0, depth / 2 - 0.27, seat)))
    parts = [painted(np.concatenate([base, *arms, rest, *soft]), cloth, _SOFA)]
    for _ in range(int(rng.integers(0, 3))):
        x, tilt = rng.uniform(-inner / 2 + 0.2, inner / 2 - 0.2), rng.uniform(0.3, 0.6)
        pillow = cushion((x, 0.05, seat + 0.24), (0.42, 0.14, 0.4), 0.6)
        parts.append(painted(sloped(pillow, 0, -tilt, (0, 0.05, seat)), palette.coloured(), _SOFA))
    feet = [boxes([[sx * (width / 2 - 0.06), sy * (depth / 2 - 0.06), 0.03]], [0.05, 0.05, 0.06])
            for sx in (-1, 1) for sy in (-1, 1)]  # fmt: skip
    parts.append(painted(np.concatenate(feet), palette.wood(), _SOFA))
    return item(parts, width, depth, seat + back)


def bed(rng: np.random.Generator, palette: Palette) -> Item:
    """Make a bed with a blanket and pillows (class clutter: S3DIS has no beds)."""
    width, length = float(rng.uniform(0.9, 1.9)), 2.05
    top = float(rng.uniform(0.42, 0.6))
    label = Element.CLUTTER
    frame = boxes([[0, 0, top / 2 - 0.06]], [width, length, top - 0.2])
    head = boxes([[0, length / 2 + 0.02, 0.5]], [width + 0.06, 0.05, float(rng.uniform(0.8, 1.1))])
    mattress = cushion((0, 0, top - 0.1), (width, length, 0.24), 0.15)
    bumps = rng.normal(0, 0.012, (13, 25))
    blanket = cushion((0, -0.25, top - 0.05), (width + 0.06, length - 0.5, 0.24), 0.2, 24, bumps)
    parts = [
        painted(np.concatenate([frame, head]), palette.wood(), label),
        painted(mattress, palette.light(), label),
        painted(blanket, palette.fabric(), label),
    ]
    for place in range(1 if width < 1.3 else 2):
        x = 0.0 if width < 1.3 else (place - 0.5) * width / 2
        pillow = cushion((x, length / 2 - 0.28, top + 0.08), (0.62, 0.4, 0.16), 0.6)
        parts.append(painted(pillow, palette.light(), label).moved(0, 0, 0, rng.normal(0, 0.03)))
    return item(parts, width + 0.1, length + 0.1, top + 0.1)


def seat_row(rng: np.random.Generator, palette: Palette, seats: int) -> list[Mesh]:
    """Make the chairs of one row of an auditorium, side by side along x, each its own mesh."""
    cloth, frame = palette.fabric(), palette.metal()
    row = []
    for place in range(seats):
        x = (place - (seats - 1) / 2) * 0.56
        folded = rng.random() < 0.5
        seat = cushion((x, -0.02, 0.45), (0.48, 0.44, 0.09), 0.3)
        if folded:
            seat = sloped(seat, 0, 1.25, (x, 0.18, 0.45))
        rest = sloped(cushion((x, 0.25, 0.7), (0.5, 0.09, 0.55), 0.3), 0, -0.2, (x, 0.25, 0.45))
        stand = boxes([[x - 0.27, 0.1, 0.31], [x + 0.27, 0.1, 0.31]], [0.05, 0.32, 0.62])
        row.append(
            join(
                [
                    painted(np.concatenate([seat, rest]), cloth, _CHAIR),
                    painted(stand, frame, _CHAIR),
                ]
            )
        )
    return row
