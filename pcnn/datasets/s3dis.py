"""S3DIS as published, `root/Area_k/TYPE_n/Annotations/CLASS_n.txt`, and its splits."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Interval, MinLen

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_sets import CloudSets, DataSource, Published, Split
from pcnn.datasets.readers.columns import COLORS, rounded_points
from pcnn.datasets.s3dis_labels import CLASS_NAMES, S3DIS
from pcnn.datasets.transforms.crops import on_floor
from pcnn.errors import FileError, MissingFileError
from pcnn.files.bounded import named, read_whole

log = logging.getLogger(__name__)

AREAS = (1, 2, 3, 4, 5, 6)
TEST_AREAS = (5,)
"""Tested by the usual split; the other five train."""

DOWNLOAD = (
    "Fill in the form at http://buildingparser.stanford.edu/dataset.html, download "
    "Stanford3dDataset_v1.2 (or its aligned version), and give the folder that holds Area_1 to "
    "Area_6 as dataset.root"
)


@dataclass(frozen=True)
class Room:
    name: str  # as in Area_1/office_3
    folder: Path  # where its files lie

    @property
    def files(self) -> list[Path]:
        """`Annotations/CLASS_n.txt`, sorted by name."""
        files = (self.folder / "Annotations").glob("*.txt")
        return sorted(path for path in files if not path.name.startswith("."))

    def read(self) -> Cloud:
        """Read all points in the building's frame [m], colours in 0..1, one of 13 classes."""
        if not self.files:
            raise MissingFileError(self.folder / "Annotations", "it holds no CLASS_n.txt")
        parts, labels = [], []
        for path in self.files:
            parts.append(read_annotation(path))
            name = path.stem.rpartition("_")[0] or path.stem
            if name not in CLASS_NAMES:
                tell(f"{path}: class {name!r} is none of the 13, read as clutter")
                name = "clutter"
            labels.append(torch.full((len(parts[-1]),), CLASS_NAMES.index(name)))
        values = np.concatenate(parts)
        if not len(values):
            tell(f"{self.folder}: the room {self.name} holds no points")
        colors = np.rint(values[:, 3:]).astype(np.float32) / 255
        return Cloud(
            torch.from_numpy(rounded_points(values[:, :3], self.folder)),
            torch.from_numpy(colors),
            torch.cat(labels),
            self.name,
            str(self.folder),
            torch.arange(len(values)),
        )


@lru_cache(maxsize=1 << 12)
def tell(text: str) -> None:
    """Say in the log what is odd about a file, once."""
    log.warning("%s", text)


_COLUMNS = 6
_LONGEST = 256  # bytes of a line that is repaired
# what the published files hold in places instead of a digit, a space or nothing
_FOREIGN = re.compile(rb"[^\x09\x0a\x0d\x20-\x7e]")
_FOREIGN_AND_SPACE = re.compile(rb"[^\x09\x0a\x0d\x20-\x7e]\s*")


def read_annotation(path: Path) -> np.ndarray:
    r"""Read the points of one object, x, y, z, r, g, b [P, 6].

    Lines of the published set that hold a control character are repaired, and told: without it,
    with a space in its place, or without it and the space after it, whichever first gives six
    numbers (Area_5/hallway_6: `185\x10187` for `185 187`; Area_5/office_19: `103.0\x100000`).
    """
    with named(path, "annotation"):
        text = read_whole(path)
        if not text.strip():
            tell(f"{path}: holds no points")
            return np.empty((0, _COLUMNS))
        try:
            # latin-1 keeps every byte: foreign ones fail as numbers, not as characters
            values = np.loadtxt(path, ndmin=2, comments=None, encoding="latin-1")
            whole = values.shape[1] == _COLUMNS
        except ValueError:
            whole = False
        if not whole:  # some line breaks the format: find it, which takes longer
            lines = enumerate(text.split(b"\n"), 1)
            values = np.array([_row(path, at, line) for at, line in lines if line.strip()])
        colour = values[:, 3:]
        if not (np.isfinite(values).all() and (colour >= 0).all() and (colour <= 255).all()):
            raise FileError(path, "numbers must be finite, colours lie in 0..255")
        return values


def _row(path: Path, number: int, line: bytes) -> list[float]:
    tries = [line]
    if len(line) <= _LONGEST and _FOREIGN.search(line) is not None:
        repairs = ((_FOREIGN, b""), (_FOREIGN, b" "), (_FOREIGN_AND_SPACE, b""))
        tries += [pattern.sub(replacement, line).strip() for pattern, replacement in repairs]
    for text in tries:
        try:
            row = [float(word) for word in text.split()]
        except ValueError:
            continue
        if len(row) == _COLUMNS:
            if text is not line:
                tell(f"{path}, line {number}: {line!r} was read as {text!r}")
            return row
    raise FileError(path, f"line {number}: no six numbers in {line[:80]!r}")


def find_rooms(root: str | Path, areas: Sequence[int]) -> list[Room]:
    """Find the rooms of some areas, sorted by area, type and number."""
    found: list[Room] = []
    for area in areas:
        folder = Path(root) / f"Area_{area}"
        if not folder.is_dir():
            lacks = f"{root} lacks Area_{area}"
            raise FileNotFoundError(f"{lacks}. {DOWNLOAD}")
        names = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
        if not names:
            raise FileNotFoundError(f"{folder} holds no rooms. {DOWNLOAD}")
        for path in sorted(names, key=_by_number):
            found.append(Room(f"{folder.name}/{path.name}", path))
    broken = [str(room.folder) for room in found if not room.files]
    if broken:
        raise FileNotFoundError(f"no Annotations/*.txt in {', '.join(broken)}")
    return found


def _by_number(path: Path) -> tuple[str, int, str]:
    stem, _, number = path.name.rpartition("_")
    return stem, int(number) if number.isdecimal() else -1, path.name


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
    label_map = S3DIS
    known_channels = COLORS
    unit = "room"
    on_floor = True

    def __post_init__(self) -> None:
        _ = self.areas  # refuses what does not exist

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
