"""The areas, the 13 classes and the 11 room types of S3DIS."""

from __future__ import annotations

from pcnn.datasets.labels import Rgb

AREAS = (1, 2, 3, 4, 5, 6)
TEST_AREAS = (5,)
"""Tested by the usual split; the other five train."""

_CLASSES: tuple[tuple[str, Rgb], ...] = (
    ("ceiling", (0, 255, 0)),
    ("floor", (0, 0, 255)),
    ("wall", (0, 255, 255)),
    ("beam", (255, 255, 0)),
    ("column", (255, 0, 255)),
    ("window", (100, 100, 255)),
    ("door", (200, 200, 100)),
    ("table", (170, 120, 200)),
    ("chair", (255, 0, 0)),
    ("sofa", (200, 100, 100)),
    ("bookcase", (10, 200, 100)),
    ("board", (200, 200, 200)),
    ("clutter", (50, 50, 50)),
)

CLASS_NAMES = tuple(name for name, _ in _CLASSES)
"""Names as in the files' names, by label."""

CLASS_COLORS = tuple(color for _, color in _CLASSES)

CLUTTER = CLASS_NAMES.index("clutter")

_TYPES: tuple[tuple[str, Rgb], ...] = (
    ("WC", (90, 160, 220)),
    ("auditorium", (220, 60, 60)),
    ("conferenceRoom", (240, 150, 40)),
    ("copyRoom", (150, 150, 150)),
    ("hallway", (250, 220, 80)),
    ("lobby", (60, 180, 90)),
    ("lounge", (160, 90, 200)),
    ("office", (40, 90, 200)),
    ("openspace", (120, 200, 200)),
    ("pantry", (200, 120, 160)),
    ("storage", (130, 90, 50)),
)

ROOM_TYPES = tuple(name for name, _ in _TYPES)
"""Names as in the folders' names, by label."""

TYPE_COLORS = tuple(color for _, color in _TYPES)


def room_type(name: str) -> int:
    """Return the type, 0..10, of a room by its name: `Area_1/conferenceRoom_2`, `office_11`."""
    stem = name.rpartition("/")[2].rpartition("_")[0]
    if stem not in ROOM_TYPES:
        raise ValueError(f"{name}: a room is called TYPE_n with a type of {', '.join(ROOM_TYPES)}")
    return ROOM_TYPES.index(stem)
