"""Numbers that shape a room, drawn once a room and recorded with the data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.files.text import read_yaml
from pcnn.simulate.simulator import Split, draw, drawn

#: kinds of rooms by name: those of S3DIS in their order, and `guestRoom`
TYPES: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_name("room_types.yaml"))


@dataclass(frozen=True)
class RoomSettings:
    """Settings of one room, lengths in metres.

    The second range is of held-out rooms, which shift what another building would shift.
    """

    width: float
    depth: float
    height: float
    doors: int
    columns: int
    beams: int
    furnishing: float = drawn((0.6, 1.3), (0.9, 1.5))  # factor on pieces of furniture
    clutter: float = drawn((0.5, 1.8), (1.0, 2.0))  # factor on small things
    window_share: float = drawn((0.2, 0.8), (0.4, 0.9))  # chance in a stretch of outer wall
    notch_share: float = drawn((0.15, 0.5))  # chance of a corner cut out of the floor plan
    disorder: float = drawn((0.02, 0.3), (0.1, 0.4))  # of chairs from where they belong
    brightness: float = drawn((0.7, 1.25), (0.6, 1.0))  # of the light
    warmth: float = drawn((0.0, 0.8), (0.4, 1.0))  # of the light: 0 neutral, 1 like a bulb

    @property
    def area(self) -> float:
        """Of the floor [m²]."""
        return self.width * self.depth


def draw_settings(rng: np.random.Generator, room_type: str, split: Split) -> RoomSettings:
    if room_type not in TYPES:
        raise ValueError(f"room type {room_type!r} is unknown; use one of {', '.join(TYPES)}")
    kind, ranges = TYPES[room_type], draw(rng, RoomSettings, split)
    width, depth, height = np.round(rng.uniform(kind["smallest"], kind["largest"]), 3).tolist()
    large = width * depth > 35.0
    return RoomSettings(
        width=width,
        depth=depth,
        height=height,
        doors=1 + int(rng.integers(0, 2 + int(depth / 4))),
        columns=int(rng.integers(0, 2 + large * 3)),
        beams=int(rng.integers(0, 2 + large * 2)),
        **ranges,
    )
