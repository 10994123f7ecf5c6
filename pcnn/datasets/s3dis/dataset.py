"""The rooms of S3DIS as labelled, coloured clouds."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.s3dis.files import Room, find_rooms, train_ids
from pcnn.datasets.sampler import evenly_spaced
from pcnn.datasets.samples import Cloud
from pcnn.datasets.transforms.augment import Augmentation, sample_generator
from pcnn.datasets.transforms.crops import sphere_crop
from pcnn.plural import counted

log = logging.getLogger(__name__)

#: Keeps the draws about crops apart from those of `pcnn.datasets.cloud_dataset.MIX3D`.
CROP = 2


class S3DISRooms(CloudDataset):
    """Rooms of some areas: x, y, z, red, green, blue, and one of 13 classes a point.

    Colours are in 0..1. The origin of a room is the middle of its bounding box along x and y and
    its lowest point along z (Pointcept's CenterShift).

    Args:
        root: folder that holds `Area_1` and so on, in either layout.
        areas: their numbers.
        voxel_size: edge of a voxel, or of a cell of native points [m].
        point_max: largest number of rows of a sample: the nearest ones to a random point, for
            training; None keeps whole rooms.
        augment: random changes, or None.
        cache: folder for reduced clouds, or None.
        seed: selects augmentations and crops.
        limit: use that many rooms, spread evenly over the set; None uses all.
        geometry: where the rows of a sample lie; None means voxels.

    Raises:
        FileNotFoundError: an area, or the files of a room, are missing.
    """

    def __init__(
        self,
        root: str | Path,
        areas: Sequence[int],
        *,
        voxel_size: VoxelSize,
        point_max: int | None = None,
        augment: Augmentation | None = None,
        cache: Path | None = None,
        seed: int = 0,
        limit: int | None = None,
        geometry: Placement | None = None,
    ) -> None:
        if point_max is not None and point_max < 1:
            raise ValueError(f"point_max must be at least 1 row or none, got {point_max}")
        self.root = Path(root)
        self.point_max = point_max
        super().__init__(
            voxel_size=voxel_size, augment=augment, cache=cache, seed=seed, geometry=geometry
        )
        self.rooms: list[Room] = evenly_spaced(find_rooms(self.root, areas), limit)
        self._named: set[int] = set()  # rooms of which the log has told what is odd
        text = sum(room.layout == "text" for room in self.rooms)
        if text:
            log.info(
                "%s: %s stored as text, which is slow; `pcnn preprocess s3dis` makes arrays",
                self.root,
                counted(text, "room is", "rooms are"),
            )

    def __len__(self) -> int:
        return len(self.rooms)

    def name(self, index: int) -> str:
        """Return area and room, as in `Area_5/office_1`."""
        return self.rooms[index].name

    def sources(self, index: int) -> Sequence[Path]:
        """Return the files of a room that are read."""
        return self.rooms[index].files()

    def recipe(self) -> Mapping[str, object]:
        """Return the root."""
        return {"set": "s3dis", "root": str(self.root.resolve())}

    def read(self, index: int) -> Cloud:
        """Return all points of a room.

        What was repaired, and a room without points, is named in the log, once in every process.

        Raises:
            ValueError: a file that breaks its format, with its name and the line.
        """
        room = self.rooms[index]
        arrays, notes = room.read()
        if not arrays.n_points:
            notes = [*notes, f"{room.folder}: the room {room.name} holds no points"]
        if notes and index not in self._named:
            self._named.add(index)
            for note in notes:
                log.warning("%s", note)
        cloud = Cloud(
            torch.from_numpy(arrays.coord),
            torch.from_numpy(arrays.color.astype(np.float32) / 255),
            torch.from_numpy(train_ids(arrays.segment)),
            room.name,
            str(room.folder),
            torch.arange(arrays.n_points),
        )
        return centred(cloud)

    def finished(self, cloud: Cloud, epoch: int, index: int) -> Cloud:
        """Return a ball of the room that has at most `point_max` rows."""
        if self.point_max is None:
            return cloud
        # a stream of its own: crops do not change with what augmentations draw
        generator = sample_generator(self.seed, epoch, index, CROP)
        cell = self.geometry.row_cell(self.voxel_size)
        return sphere_crop(cloud, generator, self.point_max, cell)


def centred(cloud: Cloud) -> Cloud:
    """Move the middle of the bounding box to x = y = 0 and its lowest point to z = 0."""
    if not cloud.n_points:
        return cloud
    low, high = cloud.points.aminmax(dim=0)
    origin = (low + high) / 2
    origin[2] = low[2]
    return replace(cloud, points=cloud.points - origin)
