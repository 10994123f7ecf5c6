"""A room of Stanford3dDataset_v1.2: one text file an object, named by its class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pcnn.datasets.rounding import rounded_points
from pcnn.datasets.s3dis.annotation_file import read_annotation
from pcnn.datasets.s3dis.classes import CLASS_NAMES, CLUTTER
from pcnn.datasets.s3dis.room_arrays import RoomArrays
from pcnn.errors import FileError, MissingFileError

_MOST = 1 << 15  # objects that int16 tells apart


def annotation_files(folder: Path) -> list[Path]:
    """Return `Annotations/CLASS_n.txt` of a room's folder, sorted by name."""
    return sorted(
        path for path in (folder / "Annotations").glob("*.txt") if not path.name.startswith(".")
    )


def read_text_room(folder: Path) -> tuple[RoomArrays, list[str]]:
    """Read all objects of a room; they are numbered in the order of their files' names.

    A file whose class is none of the 13 (the published set has stairs) is clutter, as everywhere.

    Args:
        folder: of the room, which holds `Annotations`.

    Returns:
        The room, and notes on what was repaired, renamed or empty, each with its file.

    Raises:
        MissingFileError: no annotation.
        FileError: a line that cannot be read, with file and line.
    """
    files = annotation_files(folder)
    if not files:
        raise MissingFileError(folder / "Annotations", "it holds no CLASS_n.txt")
    parts, labels, notes = [], [], []
    for path in files:
        values, repaired = read_annotation(path)
        notes += repaired
        name = path.stem.rpartition("_")[0] or path.stem
        if name not in CLASS_NAMES:
            notes.append(f"{path}: class {name!r} is none of the 13, read as clutter")
        if not len(values):
            notes.append(f"{path}: holds no points")
        parts.append(values)
        labels.append(CLASS_NAMES.index(name) if name in CLASS_NAMES else CLUTTER)
    if len(parts) > _MOST:
        raise FileError(folder, f"{len(parts)} objects are too many, {_MOST} at most are numbered")
    values = np.concatenate(parts)
    counts = [len(part) for part in parts]
    room = RoomArrays(
        rounded_points(values[:, :3], folder),
        np.rint(values[:, 3:]).astype(np.uint8),
        np.repeat(np.array(labels, np.int16), counts),
        np.repeat(np.arange(len(parts), dtype=np.int16), counts),
    )
    return room, notes
