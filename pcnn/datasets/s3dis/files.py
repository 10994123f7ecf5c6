"""The rooms of S3DIS, `root/Area_k/TYPE_n`: the published text, or the same as arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.columns import rounded_points
from pcnn.datasets.s3dis.classes import CLASS_NAMES, CLUTTER
from pcnn.errors import FileError, MissingFileError
from pcnn.files.arrays import read_npy
from pcnn.files.bounded import named, read_whole
from pcnn.files.whole_file import whole_file

#: Types and columns of the arrays; written in this order, so that coordinates come last.
_ARRAYS = {"instance": ("<i2", 1), "segment": ("<i2", 1), "color": ("|u1", 3), "coord": ("<f4", 3)}
_READ = ("coord", "color", "segment")
_RANGES = {"coord": (-1e7, 1e7), "color": (0, 255), "segment": (-1, len(CLASS_NAMES) - 1)}

DOWNLOAD = (
    "Fill in the form at http://buildingparser.stanford.edu/dataset.html, download "
    "Stanford3dDataset_v1.2 (or its aligned version, or Pointcept's arrays), and give the folder "
    "that holds Area_1 to Area_6 as dataset.root"
)


@dataclass(frozen=True, eq=False)
class RoomArrays:
    """All points of a room."""

    coord: np.ndarray  # [P, 3] float32 [m], in the building's frame
    color: np.ndarray  # [P, 3] uint8 red, green, blue
    segment: np.ndarray  # [P] int16 classes 0..12; -1 where Pointcept's files say "none"
    instance: np.ndarray | None = None  # [P] int16 objects of the room; written, never read

    @property
    def n_points(self) -> int:
        """Number of points P."""
        return len(self.coord)

    @property
    def labels(self) -> np.ndarray:
        """[P] int64 train ids."""
        return np.where(self.segment < 0, IGNORE, self.segment.astype(np.int64))


def read_array_room(folder: Path) -> RoomArrays:
    """Read a room that `write_array_room` or Pointcept's preprocessing wrote."""
    found: dict[str, np.ndarray] = {}
    for stem in _READ:
        path, (kind, columns) = folder / f"{stem}.npy", _ARRAYS[stem]
        array = read_npy(path)
        if array.ndim == 1 and columns == 1:
            array = array[:, None]
        rows = len(found.get("coord", array))
        kinds = "iu" if columns == 1 else "fiu"
        if array.shape != (rows, columns) or array.dtype.kind not in kinds:
            told = f"[{rows}, {columns}] numbers are due, found {array.dtype} {list(array.shape)}"
            raise FileError(path, told)
        low, high = _RANGES[stem]
        if rows and not (array.min() >= low and array.max() <= high):  # NaN fails too
            raise FileError(path, f"numbers must lie in {low:g}..{high:g}")
        if stem == "coord":
            array = rounded_points(array, path)
        found[stem] = np.rint(array).astype(kind) if stem == "color" else array.astype(kind)
    return RoomArrays(found["coord"], found["color"], found["segment"][:, 0])


def write_array_room(folder: Path, room: RoomArrays) -> None:
    """Write a room as Pointcept's preprocessing does; every file appears whole or not at all."""
    for stem, (kind, columns) in _ARRAYS.items():
        array = getattr(room, stem)
        if array is None:
            continue
        with whole_file(folder / f"{stem}.npy") as file:
            np.save(file, np.ascontiguousarray(array.reshape(-1, columns), dtype=kind))


_COLUMNS = 6
_LONGEST = 256  # bytes of a line that is repaired
# what the published files hold in places instead of a digit, a space or nothing
_FOREIGN = re.compile(rb"[^\x09\x0a\x0d\x20-\x7e]")
_FOREIGN_AND_SPACE = re.compile(rb"[^\x09\x0a\x0d\x20-\x7e]\s*")


def read_annotation(path: Path) -> tuple[np.ndarray, list[str]]:
    r"""Read the points of one object, x, y, z, r, g, b [P, 6], and what was repaired.

    Lines of the published set that hold a control character are repaired: without it, with a space
    in its place, or without it and the space after it, whichever first gives six numbers. Known
    are Area_5/hallway_6 (`185\x10187` for `185 187`) and Area_5/office_19 (`103.0\x100000`).
    """
    with named(path, "annotation"):
        text, notes = read_whole(path), []
        if not text.strip():
            return np.empty((0, _COLUMNS)), []
        try:
            # latin-1 keeps every byte: foreign ones fail as numbers, not as characters
            values = np.loadtxt(path, ndmin=2, comments=None, encoding="latin-1")
            whole = values.shape[1] == _COLUMNS
        except ValueError:
            whole = False
        if not whole:  # some line breaks the format: find it, which takes longer
            rows = []
            for number, line in enumerate(text.split(b"\n"), 1):
                if line.strip():
                    row, repaired = _row(line)
                    if row is None:
                        raise FileError(path, f"line {number}: no six numbers in {line[:80]!r}")
                    rows.append(row)
                    if repaired:
                        notes.append(f"{path}, line {number}: {line!r} was read as {repaired!r}")
            values = np.array(rows)
        colour = values[:, 3:]
        if not (np.isfinite(values).all() and (colour >= 0).all() and (colour <= 255).all()):
            raise FileError(path, "numbers must be finite, colours lie in 0..255")
        return values, notes


def _row(line: bytes) -> tuple[list[float] | None, bytes]:
    """Six numbers of a line, and the line that gives them where it had to be repaired."""
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
            return row, b"" if text is line else text
    return None, b""


def annotation_files(folder: Path) -> list[Path]:
    """Return `Annotations/CLASS_n.txt` of a room's folder, sorted by name."""
    return sorted(
        path for path in (folder / "Annotations").glob("*.txt") if not path.name.startswith(".")
    )


def read_text_room(folder: Path) -> tuple[RoomArrays, list[str]]:
    """Read all objects of a room, in the order of their files' names, and what was odd.

    A file whose class is none of the 13 (the published set has stairs) is clutter, as everywhere.
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
    values = np.concatenate(parts)
    room = RoomArrays(
        rounded_points(values[:, :3], folder),
        np.rint(values[:, 3:]).astype(np.uint8),
        np.repeat(np.array(labels, np.int16), [len(part) for part in parts]),
    )
    return room, notes


@dataclass(frozen=True)
class Room:
    """One room of the set."""

    name: str  # as in Area_1/office_3
    folder: Path  # where its files lie
    is_text: bool  # as published; else arrays

    @property
    def area(self) -> int:
        """Number of the area."""
        return int(self.name.partition("/")[0].removeprefix("Area_"))

    def files(self) -> list[Path]:
        """Return the files that training reads."""
        return annotation_files(self.folder) if self.is_text else _arrays(self.folder)

    def read(self) -> tuple[RoomArrays, list[str]]:
        """Read all points; also what was repaired on the way, each with file and line."""
        return read_text_room(self.folder) if self.is_text else (read_array_room(self.folder), [])


def find_rooms(root: str | Path, areas: Sequence[int]) -> list[Room]:
    """Find the rooms of some areas, sorted by area, type and number."""
    root = Path(root)
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
            is_text = not all(file.is_file() for file in _arrays(path))
            if is_text and not annotation_files(path):
                broken.append(str(path))
            found.append(Room(f"{folder.name}/{path.name}", path, is_text))
    if broken:
        raise FileNotFoundError(
            f"{len(broken)} rooms hold neither Annotations/*.txt nor coord.npy, color.npy and "
            f"segment.npy: {', '.join(broken)}. Unpack them again, or remove the folders"
        )
    return found


def _arrays(folder: Path) -> list[Path]:
    return [folder / f"{stem}.npy" for stem in _READ]


def _by_number(path: Path) -> tuple[str, int, str]:
    stem, _, number = path.name.rpartition("_")
    return stem, int(number) if number.isdecimal() else -1, path.name
