"""S3DIS, or simulated rooms in its place: classes of points, or types of rooms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen
from torch.utils.data import Dataset

from pcnn.datamodules.batch_stream import Collate
from pcnn.datamodules.segmentation import Split
from pcnn.datamodules.sourced import SourcedDataModule
from pcnn.datasets.classification import CollateClassification
from pcnn.datasets.labels import Rgb
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.readers.table import COLORS as COLOUR
from pcnn.datasets.s3dis.classes import (
    AREAS,
    CLASS_NAMES,
    COLORS,
    ROOM_TYPES,
    TEST_AREAS,
    TYPE_COLORS,
)
from pcnn.datasets.s3dis.dataset import S3DISRooms
from pcnn.datasets.s3dis.files import DOWNLOAD
from pcnn.datasets.s3dis.room_types import RoomTypes
from pcnn.datasets.source import DataSource, resolve_source, simulated_name
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.ranges import ArgumentsOf, Count, Seed, Workers
from pcnn.simulate.interiors import VERSION, simulate_rooms

_Area = Annotated[int, Interval(ge=1, le=6)]
_Rooms = Annotated[Mapping[str, Any], ArgumentsOf("pcnn.simulate.interiors.simulate_rooms")]
# arguments of the simulator that another folder tells
_TELLING = ("layout", "rooms", "spacing")


class S3DISSegmentation(SourcedDataModule):
    """Semantic segmentation of rooms: x, y, z, red, green, blue to 13 classes.

    Args:
        root: folder that holds `Area_1` and so on, as published or in Pointcept's arrays; None
            stands for ``data_dir/s3dis`` where it exists, else for simulated rooms (see
            ``source``).
        source: ``auto``, ``real`` or ``simulated``; see `pcnn.datasets.source.resolve_source`.
        data_dir: folder for the default root, simulated sets and the cache.
        test_areas: areas to test on.
        val_areas: areas to validate on; None means those of the test, may be empty.
        train_areas: areas to train on; None means all others.
        voxel_size: edge of a voxel [m]; on native points of a cell, the unit of kernels.
        point_max: largest number of rows of a training sample, see `S3DISRooms`; None trains on
            whole rooms. Validation and test always read whole rooms.
        augment: random changes of training rooms, or None.
        batch_size: as in `SegmentationDataModule`, with the following five.
        val_batch_size: ...
        num_workers: ...
        seed: ...
        geometry: ...
        on_error: ...
        cache: keep training rooms under ``data_dir/cache``: their voxels, or all their points.
        simulate: arguments of `pcnn.simulate.interiors.simulate_rooms`: seed, rooms,
            spacing, layout, workers, progress.
        limit_train: number of training rooms, spread over the areas; None uses all.
        limit_val: number of validation and of test rooms; None uses all.
        allow_missing: use the areas that are there where some are missing.

    Raises:
        ValueError: an area that does not exist, or that both trains and judges.
    """

    unit = "room"

    def __init__(
        self,
        root: str | None = None,
        source: str = "auto",
        data_dir: str = "data",
        test_areas: Sequence[_Area] = TEST_AREAS,
        val_areas: Sequence[_Area] | None = None,
        train_areas: Annotated[Sequence[_Area], MinLen(1)] | None = None,
        voxel_size: VoxelSize = 0.05,
        point_max: Count | None = 100_000,
        augment: Augmentation | None = None,
        batch_size: Count = 1,
        val_batch_size: Count = 1,
        num_workers: Workers = 2,
        cache: bool = True,
        seed: Seed = 0,
        simulate: _Rooms | None = None,
        limit_train: Count | None = None,
        limit_val: Count | None = None,
        geometry: Placement | None = None,
        on_error: str = "raise",
        allow_missing: bool = False,
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            val_batch_size=val_batch_size,
            num_workers=num_workers,
            seed=seed,
            geometry=geometry,
            on_error=on_error,
        )
        self.root = root
        self.source = source
        self.data_dir = Path(data_dir)
        self.areas = split_areas(test_areas, val_areas, train_areas)
        self.voxel_size = voxel_size
        self.point_max = point_max
        self.augment = augment
        self.cache = cache
        self.simulate: dict[str, Any] = {"layout": "arrays", **(simulate or {})}
        self.limit_train = limit_train
        self.limit_val = limit_val
        self.allow_missing = allow_missing

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the 13 classes."""
        return CLASS_NAMES

    @property
    def colors(self) -> tuple[Rgb, ...]:
        """The colours in which the classes are usually shown."""
        return COLORS

    @property
    def channels(self) -> tuple[str, ...]:
        """Colour, in 0..1."""
        return COLOUR

    @property
    def tests_on_validation(self) -> bool:
        """Whether the same areas validate and test."""
        return self.areas["test"] == self.areas["val"]

    def rooms(self, split: Split) -> S3DISRooms | None:
        """Make the rooms of a split; None where it has no areas."""
        root = self.found.root
        areas = self.parts_there(
            split, self.areas[split], lambda area: (root / f"Area_{area}").is_dir(), "areas"
        )
        if not areas:
            return None
        train = split == "train"
        return S3DISRooms(
            root,
            areas,
            voxel_size=self.voxel_size,
            point_max=self.point_max if train else None,
            augment=self.augment if train else None,
            cache=self.data_dir / "cache" / "s3dis" if train and self.cache else None,
            seed=self.seed,
            limit=self.limit_train if train else self.limit_val,
            geometry=self.geometry,
        )

    def build(self, split: Split) -> S3DISRooms | None:
        """Make the data set of a split."""
        return self.rooms(split)

    def find(self) -> DataSource:
        """The given folder, ``data_dir/s3dis``, or simulated rooms."""
        name = simulated_name("s3dis", VERSION, simulate_rooms, self.simulate, _TELLING)
        return resolve_source(
            "S3DIS",
            self.root,
            self.source,
            self.data_dir / "s3dis",
            self.data_dir / "simulated" / name,
            partial(simulate_rooms, **self.simulate),
            [],
            DOWNLOAD,
        )


class S3DISClassification(S3DISSegmentation):
    """Classification of rooms into 11 types; arguments as `S3DISSegmentation`."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the 11 types."""
        return ROOM_TYPES

    @property
    def colors(self) -> tuple[Rgb, ...]:
        """A colour a type."""
        return TYPE_COLORS

    def build(self, split: Split) -> Dataset[Any] | None:  # type: ignore[override]
        """Make the data set of a split."""
        rooms = self.rooms(split)
        if rooms is None:
            return None
        rooms.gives_raw_points = split != "train"
        return RoomTypes(rooms)

    def collate(self) -> Collate:
        """Return what joins rooms into one sparse tensor."""
        return CollateClassification(self.in_channels, self.geometry)


def split_areas(
    test: Sequence[int], val: Sequence[int] | None, train: Sequence[int] | None
) -> dict[Split, tuple[int, ...]]:
    """Return the areas of every split; arguments as in `S3DISSegmentation`.

    Raises:
        ValueError: an area that is none of 1..6, or that both trains and judges.
    """
    val = test if val is None else val
    if train is None:
        train = [area for area in AREAS if area not in (*test, *val)]
    unknown = sorted({*test, *val, *train} - set(AREAS))
    if unknown:
        raise ValueError(f"areas are 1 to 6, got {', '.join(map(str, unknown))}")
    both = sorted(set(train) & {*test, *val})
    if both:
        raise ValueError(
            f"Area {', '.join(map(str, both))} is in train_areas and in test_areas or val_areas; "
            "leave train_areas null to train on all others"
        )
    return {"train": tuple(train), "val": tuple(val), "test": tuple(test)}
