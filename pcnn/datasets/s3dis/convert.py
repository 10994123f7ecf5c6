"""From the published text of a room to arrays, which load a hundred times faster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pcnn.datasets.s3dis.room_arrays import RoomArrays, read_array_room, write_array_room
from pcnn.datasets.s3dis.rooms import layout_of
from pcnn.datasets.s3dis.text_room import read_text_room
from pcnn.errors import FileError, MissingFileError
from pcnn.files.text import finite_numbers, numbered_lines


@dataclass(frozen=True)
class ConvertedRoom:
    """What became of a room.

    Args:
        points: written.
        objects: with at least one point.
        notes: what was repaired, renamed or empty, each with its file.
    """

    points: int
    objects: int
    notes: tuple[str, ...]


def convert_room(source: str | Path, target: str | Path, *, align: bool = False) -> ConvertedRoom:
    """Write a room in Pointcept's layout; see `write_array_room`.

    Args:
        source: folder of a room in either layout.
        target: folder to write; a room that is there already is replaced.
        align: turn the room about its middle by the angle that `Area_k_alignmentAngle.txt` beside
            the source gives, so that its walls follow the axes, as Pointcept's `align_angle` does.

    Raises:
        FileNotFoundError: no room there, or no angle for it.
        FileError: a file that breaks its format, with file and line.
    """
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
    """Return by how many degrees a room is turned in its building.

    Raises:
        MissingFileError: no `Area_k_alignmentAngle.txt` beside the room, or no line for it.
        FileError: the line holds no number.
    """
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
