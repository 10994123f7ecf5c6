"""S3DIS: six areas of rooms, as published or in Pointcept's arrays."""

from pcnn.datasets.s3dis.classes import AREAS, CLASS_NAMES, ROOM_TYPES, TEST_AREAS, room_type
from pcnn.datasets.s3dis.convert import ConvertedRoom, convert_room
from pcnn.datasets.s3dis.dataset import S3DISRooms
from pcnn.datasets.s3dis.files import DOWNLOAD, Room, find_rooms, is_array_room
from pcnn.datasets.s3dis.room_types import RoomTypes

__all__ = [
    "AREAS",
    "CLASS_NAMES",
    "DOWNLOAD",
    "ROOM_TYPES",
    "TEST_AREAS",
    "ConvertedRoom",
    "Room",
    "RoomTypes",
    "S3DISRooms",
    "convert_room",
    "find_rooms",
    "is_array_room",
    "room_type",
]
