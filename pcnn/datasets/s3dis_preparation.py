"""Rooms of S3DIS written as arrays, all of them, ahead of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pcnn.datasets.preparation import Preparation, State
from pcnn.datasets.s3dis import Room, convert_room, is_array_room
from pcnn.datasets.whole_file import whole_file
from pcnn.simulate.marker import MARKER


@dataclass(frozen=True)
class ConvertRooms(Preparation):
    """Write rooms in Pointcept's layout of arrays.

    Args:
        rooms: to convert.
        target: folder to write ``Area_k/ROOM`` into; see `keep_alignment`.
        align: as `pcnn.datasets.s3dis.convert_room`.
    """

    rooms: tuple[Room, ...]
    target: Path
    align: bool = False

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
    """Mark a folder of turned rooms, before the first is written.

    Raises:
        ValueError: the folder holds rooms that were turned, and these shall not be, or the other
            way round: what is there would stay as it is.
    """
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
