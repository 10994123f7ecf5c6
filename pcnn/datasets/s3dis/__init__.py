"""S3DIS: six areas of rooms, as published or in Pointcept's arrays."""

from pcnn.datasets.s3dis.classes import AREAS, CLASS_NAMES, ROOM_TYPES, TEST_AREAS, room_type
from pcnn.datasets.s3dis.files import DOWNLOAD, Room, find_rooms
from pcnn.datasets.s3dis.rooms import S3DISRooms, S3DISSets, S3DISTypeSets

__all__ = [
    "AREAS",
    "CLASS_NAMES",
    "DOWNLOAD",
    "ROOM_TYPES",
    "TEST_AREAS",
    "Room",
    "S3DISRooms",
    "S3DISSets",
    "S3DISTypeSets",
    "find_rooms",
    "room_type",
]
