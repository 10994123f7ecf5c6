"""Light in scanned rooms."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.rooms.paint import Paint
from pcnn.simulate.rooms.scanner import brightness
from tests.simulate.rooms.bare_room import bare_room

MATT = Paint((0.5, 0.5, 0.5))
FLOOR = (-4.0, -4.0, -0.1), (4.0, 4.0, 0.0), MATT
PLATE = (0.5, -0.4, 0.5), (1.3, 0.4, 0.55), MATT


def test_a_plate_casts_the_shadow_of_the_lamp_and_nothing_else_changes() -> None:
    x, y = np.meshgrid(np.linspace(-3, 3, 41), np.linspace(-3, 3, 41))
    points = np.stack([x, y, np.zeros_like(x)], -1).reshape(-1, 3)
    up = np.tile([0.0, 0.0, 1.0], (len(points), 1))
    open_floor, shaded = (brightness(bare_room(*p), points, up) for p in ((FLOOR,), (FLOOR, PLATE)))
    # the only lamp hangs 2 m above the origin: Lambert's law by hand
    square = (points**2).sum(1) + 4.0
    share = 2.0 / np.sqrt(square) / (1.0 + square)
    expected = 0.35 + 0.65 * np.minimum(share / share.mean(), 2.0)
    np.testing.assert_allclose(open_floor, expected, rtol=1e-12)
    # rays to points at 1.35 times the plate's corners, seen from the lamp, pass its edge
    inside = (np.abs(points[:, 0] - 1.2) < 0.4) & (np.abs(points[:, 1]) < 0.45)
    outside = (points[:, 0] < 0.55) | (points[:, 0] > 2.0) | (np.abs(points[:, 1]) > 0.65)
    np.testing.assert_array_equal(shaded[outside], open_floor[outside])
    dark = 0.35 + 0.65 * np.minimum(0.3 * share / share.mean(), 2.0)
    np.testing.assert_allclose(shaded[inside], dark[inside], rtol=1e-12)
