"""Rooms of a few boxes, whose depth images are known."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.mesh import join, surface
from pcnn.simulate.rooms.paint import Paint
from pcnn.simulate.rooms.room import Room
from pcnn.simulate.rooms.settings import draw_settings
from pcnn.simulate.shapes import block


def bare_room(*boxes: tuple[tuple[float, float, float], tuple[float, float, float], Paint]) -> Room:
    """A room of nothing but boxes (low corner, high corner, paint)."""
    parts = [surface(block(low, high), number, 2) for number, (low, high, _) in enumerate(boxes)]
    settings = draw_settings(np.random.default_rng(0), "office", "train")
    paints = [paint for _, _, paint in boxes]
    return Room.of(settings, join(parts), paints, np.array([[0.0, 0.0, 2.0]]))


def wall(distance: float, paint: Paint) -> tuple[tuple[float, ...], tuple[float, ...], Paint]:
    """A wall across the x axis, `distance` metres from the origin."""
    return (distance, -9.0, -9.0), (distance + 0.1, 9.0, 9.0), paint
