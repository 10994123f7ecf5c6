"""From the published text of rooms to arrays, which load a hundred times faster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pcnn.datasets.preparation import Preparation, State
from pcnn.datasets.s3dis.files import (
    Room,
    RoomArrays,
    is_array_room,
    layout_of,
    read_array_room,
    read_text_room,
    write_array_room,
)
from pcnn.errors import FileError, MissingFileError
from pcnn.files.simulated import MARKER
from pcnn.files.text import finite_numbers, numbered_lines
from pcnn.files.whole_file import whole_file


@dataclass(frozen=True)
class ConvertedRoom:
    """The result of a conversion."""

    points: int  # written
    objects: int  # with at least one point
    notes: tuple[str, ...]  # what was repaired, renamed or empty, each with its file


def convert_room(source: str | Path, target: str | Path, *, align: bool = False) -> ConvertedRoom:
    """Write a room in Pointcept's layout; see `write_array_room`."""
    source, target = Path(source), Path(target)
    notes: list[str] = []
    if layout_of(source) == "arrays":
        room = read_array_room(source)
    else:
        room, notes = read_text_room(source)
    if not room.n_points:
        raise FileError(source, "the room holds no points")
    if align:
        room = _turned(room, alignment_angle(source))
    write_array_room(target, room)
    return ConvertedRoom(room.n_points, len(np.unique(room.instance)), tuple(notes))


def alignment_angle(folder: Path) -> float:
    """Return by how many degrees a room is turned in its building."""
    path = folder.parent / f"{folder.parent.name}_alignmentAngle.txt"
    if not path.is_file():
        raise MissingFileError(path, "no such file; rooms cannot be aligned without it")
    for number, line in numbered_lines(path):
        words = line.split()
        if words[0] == folder.name:
            return finite_numbers(path, number, words[1:], 1)[0]
    raise MissingFileError(path, f"it has no line for {folder.name}")


def _turned(room: RoomArrays, degrees: float) -> RoomArrays:
    """Turn by minus the angle about the middle of the bounding box."""
    points = room.coord.astype(np.float64)
    middle = (points.max(0) + points.min(0)) / 2
    turn = -np.radians(degrees)
    cos, sin = np.cos(turn), np.sin(turn)
    matrix = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    return replace(room, coord=((points - middle) @ matrix.T + middle).astype(np.float32))


@dataclass(frozen=True)
class ConvertRooms(Preparation):
    """Write rooms in Pointcept's layout of arrays."""

    rooms: tuple[Room, ...]  # to convert
    target: Path  # folder to write Area_k/ROOM into; see keep_alignment
    align: bool = False  # as pcnn.datasets.s3dis.convert_room

    def __len__(self) -> int:
        return len(self.rooms)

    def name(self, index: int) -> str:
        """Area and room."""
        return self.rooms[index].name

    def do(self, index: int) -> tuple[State, tuple[str, ...]]:
        """Convert a room, unless all its arrays are there."""
        room = self.rooms[index]
        folder = self.target / room.name
        if is_array_room(folder):
            return "kept", ()
        return "made", convert_room(room.folder, folder, align=self.align).notes


#: Stands beside rooms that were turned.
ALIGNED = ".aligned"


def keep_alignment(work: ConvertRooms) -> None:
    """Mark a folder of turned rooms, before the first is written."""
    path = work.target / ALIGNED
    there = sum(is_array_room(work.target / room.name) for room in work.rooms)
    if there and path.is_file() != work.align:
        how = ("without", "with") if work.align else ("with", "without")
        raise ValueError(
            f"{work.target} holds {there} rooms that were written {how[0]} --align; go on "
            f"{how[0]} it, or write those {how[1]} it to another folder (--out)"
        )
    if work.align:
        with whole_file(path):
            pass


def keep_marker(source: Path, target: Path) -> None:
    """Mark arrays made of simulated rooms as simulated, before the first is written."""
    folder = source.resolve()
    marker = next((f / MARKER for f in (folder, *folder.parents) if (f / MARKER).is_file()), None)
    if marker is not None:
        with whole_file(target / MARKER) as file:
            file.write(marker.read_bytes())
