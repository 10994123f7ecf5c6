"""The 13 classes of S3DIS: their names, as in its files, and colours."""

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

CLASS_NAMES = tuple(_CLASSES)
_NUMBERS = tuple(range(len(CLASS_NAMES)))
S3DIS = LabelMap(
    CLASS_NAMES,
    tuple(_CLASSES.values()),
    {n: n for n in (*_NUMBERS, IGNORE)},  # labels are the train ids themselves
    _NUMBERS,
    IGNORE,
)
