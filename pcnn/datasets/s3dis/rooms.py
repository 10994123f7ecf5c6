"""Where the rooms of S3DIS lie: `root/Area_k/TYPE_n`, in either layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pcnn.datasets.s3dis.room_arrays import RoomArrays, array_files, read_array_room
from pcnn.datasets.s3dis.text_room import annotation_files, read_text_room

Layout = Literal["text", "arrays"]

DOWNLOAD = (
    "Fill in the form at http://buildingparser.stanford.edu/dataset.html, download "
    "Stanford3dDataset_v1.2 (or its aligned version, or Pointcept's arrays), and give the folder "
    "that holds Area_1 to Area_6 as dataset.root"
)


@dataclass(frozen=True)
class Room:
    """One room of the set.

    Args:
        name: as in `Area_1/office_3`.
        folder: where its files lie.
        layout: `text` as published, or `arrays` as Pointcept preprocesses it.
    """

    name: str
    folder: Path
    layout: Layout

    @property
    def area(self) -> int:
        """Number of the area."""
        return int(self.name.partition("/")[0].removeprefix("Area_"))

    def files(self) -> list[Path]:
        """Return the files that training reads."""
        return (
            array_files(self.folder) if self.layout == "arrays" else annotation_files(self.folder)
        )

    def read(self) -> tuple[RoomArrays, list[str]]:
        """Read all points; also what was repaired on the way, each with file and line.

        Raises:
            ValueError: a file that breaks its format.
        """
        if self.layout == "arrays":
            return read_array_room(self.folder), []
        return read_text_room(self.folder)


def find_rooms(root: str | Path, areas: Sequence[int] | None = None) -> list[Room]:
    """Find the rooms of some areas, sorted by area, type and number.

    Args:
        root: holds `Area_1` and so on.
        areas: their numbers; None takes those that are there.

    Raises:
        FileNotFoundError: an area is missing or empty, or a room lacks its files; all such rooms
            are named.
    """
    root = Path(root)
    if areas is None:
        areas = sorted(
            int(path.name[5:]) for path in root.glob("Area_*") if path.name[5:].isdigit()
        )
        if not areas:
            raise FileNotFoundError(f"{root} holds no Area_1 .. Area_6. {DOWNLOAD}")
    found, broken = [], []
    absent = [f"Area_{area}" for area in areas if not (root / f"Area_{area}").is_dir()]
    if absent:
        raise FileNotFoundError(
            f"{root} lacks {', '.join(absent)}. dataset.allow_missing=true uses the areas that are "
            f"there. {DOWNLOAD}"
        )
    for area in areas:
        folder = root / f"Area_{area}"
        names = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
        if not names:
            raise FileNotFoundError(f"{folder} holds no rooms. {DOWNLOAD}")
        for path in sorted(names, key=_by_number):
            layout = layout_of(path)
            if layout is None:
                broken.append(str(path))
            else:
                found.append(Room(f"{folder.name}/{path.name}", path, layout))
    if broken:
        raise FileNotFoundError(
            f"{len(broken)} rooms hold neither Annotations/*.txt nor coord.npy, color.npy and "
            f"segment.npy: {', '.join(broken)}. Unpack them again, or remove the folders"
        )
    return found


def layout_of(folder: Path) -> Layout | None:
    """Return the layout of a room's folder; None where it holds neither."""
    if all(path.is_file() for path in array_files(folder)):
        return "arrays"
    return "text" if annotation_files(folder) else None


def _by_number(path: Path) -> tuple[str, int, str]:
    stem, _, number = path.name.rpartition("_")
    matched = re.fullmatch(r"\d+", number)
    return stem, int(number) if matched else -1, path.name
