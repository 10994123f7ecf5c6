"""What a room looks like, drawn once a room and recorded with the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Split = Literal["train", "val", "test"]


@dataclass(frozen=True)
class RoomSettings:
    """Numbers that shape one room. Lengths in metres."""

    width: float
    depth: float
    height: float
    furnishing: float  # factor on the number of pieces of furniture
    clutter: float  # factor on the number of small things
    window_share: float  # chance of a window in a stretch of outer wall
    doors: int
    columns: int
    beams: int
    notch_share: float  # chance of a corner that is cut out of the floor plan
    disorder: float  # how far chairs stand from where they belong [m]
    brightness: float  # of the light
    warmth: float  # colour of the light: 0 neutral, 1 like a bulb


# (width, depth, height) from the smallest to the largest
_SIZES: dict[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "WC": ((2.0, 2.4, 2.4), (4.5, 5.5, 2.9)),
    "auditorium": ((8.0, 9.0, 3.4), (13.0, 14.0, 4.6)),
    "conferenceRoom": ((4.0, 5.0, 2.6), (6.0, 8.5, 3.1)),
    "copyRoom": ((2.5, 3.0, 2.5), (4.5, 5.5, 3.0)),
    "hallway": ((1.7, 6.0, 2.5), (2.8, 18.0, 3.0)),
    "lobby": ((6.0, 6.5, 2.8), (10.0, 11.0, 3.8)),
    "lounge": ((4.0, 4.5, 2.5), (7.0, 8.0, 3.1)),
    "office": ((2.8, 3.4, 2.5), (5.5, 6.5, 3.1)),
    "openspace": ((7.0, 8.0, 2.7), (12.0, 13.0, 3.4)),
    "pantry": ((2.5, 3.2, 2.5), (4.5, 5.5, 3.0)),
    "storage": ((2.2, 2.8, 2.4), (5.0, 6.0, 3.2)),
    "guestRoom": ((3.2, 4.0, 2.4), (4.6, 6.0, 2.9)),
}

_TRAIN: dict[str, tuple[float, float]] = {
    "furnishing": (0.6, 1.3),
    "clutter": (0.5, 1.8),
    "window_share": (0.2, 0.8),
    "notch_share": (0.15, 0.5),
    "disorder": (0.02, 0.3),
    "brightness": (0.7, 1.25),
    "warmth": (0.0, 0.8),
}

# held-out rooms shift what another building would shift
_VAL: dict[str, tuple[float, float]] = {
    "furnishing": (0.9, 1.5),
    "clutter": (1.0, 2.0),
    "window_share": (0.4, 0.9),
    "disorder": (0.1, 0.4),
    "brightness": (0.6, 1.0),
    "warmth": (0.4, 1.0),
}


def draw_settings(rng: np.random.Generator, room_type: str, split: Split) -> RoomSettings:
    """Draw the settings of one room, uniformly inside the ranges of its type and split.

    Raises:
        ValueError: an unknown room type or split.
    """
    if room_type not in _SIZES:
        raise ValueError(f"room type {room_type!r} is unknown; use one of {', '.join(_SIZES)}")
    if split not in ("train", "val", "test"):
        raise ValueError(f"split {split!r} is unknown; use 'train', 'val' or 'test'")
    ranges = _TRAIN | ({} if split == "train" else _VAL)
    width, depth, height = (float(v) for v in rng.uniform(*_SIZES[room_type]))
    drawn = {name: round(float(rng.uniform(*span)), 4) for name, span in ranges.items()}
    area = width * depth
    large = area > 35.0
    return RoomSettings(
        width=round(width, 3),
        depth=round(depth, 3),
        height=round(height, 3),
        doors=1 + int(rng.integers(0, 2 + int(depth / 4))),
        columns=int(rng.integers(0, 2 + large * 3)),
        beams=int(rng.integers(0, 2 + large * 2)),
        **drawn,
    )
