"""Rooms of S3DIS with their types, which the folders' names tell."""

from __future__ import annotations

from torch.utils.data import Dataset

from pcnn.datasets.classification import ClassificationSample
from pcnn.datasets.s3dis.classes import room_type
from pcnn.datasets.s3dis.dataset import S3DISRooms
from pcnn.datasets.sampler import Key


class RoomTypes(Dataset[ClassificationSample]):
    """The rooms of a set, each with one of 11 types.

    Args:
        rooms: read, augmented, cropped and placed as for a segmentation.

    Raises:
        ValueError: a room whose name tells no type, or an augmentation that adds one room to
            another, which would have two types.
    """

    def __init__(self, rooms: S3DISRooms) -> None:
        if rooms.augment is not None and (rooms.augment.mix3d or rooms.augment.mix is not None):
            raise ValueError(
                "a mix of two rooms has no type: classify with augment=rooms, or augment.mix3d=0 "
                "and augment.mix=null"
            )
        self.rooms = rooms
        self.labels = [room_type(room.name) for room in rooms.rooms]

    def __len__(self) -> int:
        return len(self.rooms)

    def __getitem__(self, key: Key | int) -> ClassificationSample:
        """Return the sample of a key (epoch, index)."""
        sample = self.rooms[key]
        index = key[1] if isinstance(key, tuple) else key
        return ClassificationSample(
            sample.geometry,
            sample.features,
            self.labels[index],
            sample.name,
            sample.path,
            None if sample.own is None else sample.points,
            sample.own,
        )
