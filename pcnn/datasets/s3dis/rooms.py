"""The rooms of S3DIS as labelled, coloured clouds, and their splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_sets import CloudSets, DataSource, Published, Split
from pcnn.datasets.labels import IGNORE, LabelMap
from pcnn.datasets.readers.columns import COLORS
from pcnn.datasets.s3dis.classes import (
    AREAS,
    CLASS_COLORS,
    CLASS_NAMES,
    ROOM_TYPES,
    TEST_AREAS,
    TYPE_COLORS,
    room_type,
)
from pcnn.datasets.s3dis.files import DOWNLOAD, find_rooms
from pcnn.datasets.transforms.crops import on_floor

_PUBLISHED = Published("S3DIS", "s3dis", "pcnn.simulate.rooms.s3dis.S3DIS", DOWNLOAD)
_Area = Annotated[int, Interval(ge=1, le=6)]


class S3DISRooms:
    """Rooms of some areas: x, y, z, red, green, blue, and one of 13 classes a point."""

    channels = COLORS

    def __init__(self, root: str | Path, areas: Sequence[int]) -> None:
        self.root = Path(root)
        self.rooms = find_rooms(self.root, areas)

    def __len__(self) -> int:
        return len(self.rooms)

    def name(self, index: int) -> str:
        return self.rooms[index].name

    def sources(self, index: int) -> Sequence[Path]:
        return self.rooms[index].files

    def recipe(self) -> Mapping[str, object]:
        return {"set": "s3dis", "root": str(self.root.resolve())}

    def read(self, index: int) -> Cloud:
        return on_floor(self.rooms[index].read())


@dataclass(frozen=True)
class S3DISSets(CloudSets):
    """The splits of S3DIS, or simulated rooms in their place."""

    root: str | None = None  # folder that holds Area_1 and so on
    source: str = "auto"  # auto, real or simulated; see pcnn.datasets.cloud_sets.Published.found
    data_dir: str = "data"  # folder for the default root and for simulated sets
    test_areas: Sequence[_Area] = TEST_AREAS  # areas to test on
    val_areas: Sequence[_Area] | None = None  # areas to validate on
    train_areas: Annotated[Sequence[_Area], MinLen(1)] | None = None  # areas to train on
    simulate: Mapping[str, Any] | None = None  # arguments of the simulator
    unit = "room"
    on_floor = True

    def __post_init__(self) -> None:
        _ = self.areas  # refuses what does not exist

    @property
    def label_map(self) -> LabelMap:
        return _by_number(CLASS_NAMES, CLASS_COLORS)

    @property
    def known_channels(self) -> Sequence[str]:
        return S3DISRooms.channels

    @cached_property
    def areas(self) -> dict[Split, tuple[int, ...]]:
        test = self.test_areas
        val = test if self.val_areas is None else self.val_areas
        others = [area for area in AREAS if area not in (*test, *val)]
        train = others if self.train_areas is None else self.train_areas
        if not {*test, *val, *train} <= set(AREAS):
            raise ValueError(f"areas are 1 to 6, got {sorted({*test, *val, *train})}")
        both = sorted(set(train) & {*test, *val})
        if both:
            raise ValueError(f"train_areas: {both} are in test_areas or val_areas, too")
        return {"train": tuple(train), "val": tuple(val), "test": tuple(test)}

    @property
    def tests_on_validation(self) -> bool:
        return self.areas["test"] == self.areas["val"]

    @cached_property
    def found(self) -> DataSource:
        return _PUBLISHED.found(self.root, self.source, self.data_dir, self.simulate)

    def find(self, split: Split) -> S3DISRooms | None:
        areas = self.areas[split]
        return S3DISRooms(self.found.root, areas) if areas else None


@dataclass(frozen=True)
class S3DISTypeSets(S3DISSets):
    """The splits of S3DIS for a classification of whole rooms; arguments as `S3DISSets`."""

    @property
    def label_map(self) -> LabelMap:
        return _by_number(ROOM_TYPES, TYPE_COLORS)

    def class_of(self, name: str) -> int:
        return room_type(name)


def _by_number(names: Sequence[str], colors: Sequence[tuple[int, int, int]]) -> LabelMap:
    """A map of labels that are the train ids themselves."""
    numbers = tuple(range(len(names)))
    own = {**{n: n for n in numbers}, IGNORE: IGNORE}
    return LabelMap(tuple(names), tuple(colors), own, numbers, IGNORE)
