"""The 13 classes and the 11 room types of S3DIS: their names, as in its files, and colours."""

from __future__ import annotations

from pcnn.datasets.labels import IGNORE, LabelMap, Rgb

_CLASSES: dict[str, Rgb] = {
    "ceiling": (0, 255, 0),
    "floor": (0, 0, 255),
    "wall": (0, 255, 255),
    "beam": (255, 255, 0),
    "column": (255, 0, 255),
    "window": (100, 100, 255),
    "door": (200, 200, 100),
    "table": (170, 120, 200),
    "chair": (255, 0, 0),
    "sofa": (200, 100, 100),
    "bookcase": (10, 200, 100),
    "board": (200, 200, 200),
    "clutter": (50, 50, 50),
}
_TYPES: dict[str, Rgb] = {
    "WC": (90, 160, 220),
    "auditorium": (220, 60, 60),
    "conferenceRoom": (240, 150, 40),
    "copyRoom": (150, 150, 150),
    "hallway": (250, 220, 80),
    "lobby": (60, 180, 90),
    "lounge": (160, 90, 200),
    "office": (40, 90, 200),
    "openspace": (120, 200, 200),
    "pantry": (200, 120, 160),
    "storage": (130, 90, 50),
}


def _numbered(colors: dict[str, Rgb]) -> LabelMap:
    """A map of labels that are the train ids themselves."""
    numbers = tuple(range(len(colors)))
    own = {**{n: n for n in numbers}, IGNORE: IGNORE}
    return LabelMap(tuple(colors), tuple(colors.values()), own, numbers, IGNORE)


S3DIS, S3DIS_TYPES = _numbered(_CLASSES), _numbered(_TYPES)
CLASS_NAMES, ROOM_TYPES = S3DIS.class_names, S3DIS_TYPES.class_names
