"""The 13 classes and 11 room types of S3DIS."""

from __future__ import annotations

from enum import IntEnum


class Element(IntEnum):
    """Classes in the order of the usual loaders; the value is the label."""

    CEILING = 0
    FLOOR = 1
    WALL = 2
    BEAM = 3
    COLUMN = 4
    WINDOW = 5
    DOOR = 6
    TABLE = 7
    CHAIR = 8
    SOFA = 9
    BOOKCASE = 10
    BOARD = 11
    CLUTTER = 12


#: class names as they stand in the file names of S3DIS, by label
CLASS_NAMES = tuple(element.name.lower() for element in Element)

#: room types as they stand in the folder names of S3DIS
ROOM_TYPES = (
    "WC",
    "auditorium",
    "conferenceRoom",
    "copyRoom",
    "hallway",
    "lobby",
    "lounge",
    "office",
    "openspace",
    "pantry",
    "storage",
)
