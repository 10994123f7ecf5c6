"""The rooms of S3DIS, `root/Area_k/TYPE_n`: published text, or Pointcept's arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.columns import rounded_points
from pcnn.datasets.s3dis.classes import CLASS_NAMES, CLUTTER
from pcnn.errors import FileError, MissingFileError
from pcnn.files.arrays import read_npy
from pcnn.files.bounded import named, read_whole
from pcnn.files.whole_file import whole_file

# written in this order, so that a room that holds coordinates holds everything
STEMS = ("instance", "segment", "color", "coord")
_TYPES = {"instance": "<i2", "segment": "<i2", "color": "|u1", "coord": "<f4"}


@dataclass(frozen=True, eq=False)
class RoomArrays:
    """All points of a room."""

    coord: np.ndarray  # [P, 3] float32 [m], in the building's frame
    color: np.ndarray  # [P, 3] uint8 red, green, blue
    segment: np.ndarray  # [P] int16 classes 0..12; -1 where Pointcept's files say "none"
    instance: np.ndarray  # [P] int16 objects of the room, from 0; -1 where there is none

    @property
    def n_points(self) -> int:
        """Number of points P."""
        return len(self.coord)


def array_files(folder: Path) -> list[Path]:
    """Return the files of a room of arrays that training reads: coordinates, colours, classes."""
    return [folder / f"{stem}.npy" for stem in ("coord", "color", "segment")]


def is_array_room(folder: str | Path) -> bool:
    """Tell whether a folder holds all four arrays of a room."""
    return all((Path(folder) / f"{stem}.npy").is_file() for stem in STEMS)


def read_array_room(folder: Path) -> RoomArrays:
    """Read `coord`, `color`, `segment` and, where it exists, `instance` from a room's folder.

    Written by `write_array_room` or by Pointcept; its `normal.npy` is not read.
    """
    coord = _load(folder, "coord", 3)
    n = len(coord)
    bad = ~np.isfinite(coord).all(1)
    if bad.any():
        raise FileError(
            folder / "coord.npy",
            f"{int(bad.sum())} of {n} points are NaN or infinite, the first is point "
            f"{int(bad.argmax())}",
        )
    color = _load(folder, "color", 3, n)
    if color.dtype != np.uint8:
        if len(color) and not (color.min() >= 0 and color.max() <= 255):  # NaN fails too
            raise FileError(folder / "color.npy", "colours must lie in 0..255")
        color = np.rint(color).astype(np.uint8)
    segment = _load(folder, "segment", 1, n)[:, 0]
    if n and not (segment.min() >= -1 and segment.max() < len(CLASS_NAMES)):
        raise FileError(
            folder / "segment.npy",
            f"classes must lie in -1..{len(CLASS_NAMES) - 1}, found {segment.min()}.."
            f"{segment.max()}",
        )
    instance = np.full(n, -1, np.int16)
    if (folder / "instance.npy").is_file():
        instance = _load(folder, "instance", 1, n)[:, 0]
        if n and not (instance.min() >= -1 and instance.max() < 1 << 15):
            raise FileError(folder / "instance.npy", "objects are numbered from 0, -1 for none")
    return RoomArrays(
        rounded_points(coord, folder / "coord.npy"),
        color,
        segment.astype(np.int16, copy=False),
        instance.astype(np.int16, copy=False),
    )


def write_array_room(folder: Path, room: RoomArrays) -> None:
    """Write a room as Pointcept's preprocessing does; every file appears whole or not at all.

    `coord` float32 [P, 3], `color` uint8 [P, 3], `segment` int16 [P, 1], `instance` int16 [P, 1].
    """
    for stem in STEMS:
        array = getattr(room, stem)
        array = array if array.ndim == 2 else array[:, None]
        with whole_file(folder / f"{stem}.npy") as file:
            np.save(file, np.ascontiguousarray(array, dtype=_TYPES[stem]))


def train_ids(segment: np.ndarray) -> np.ndarray:
    """Return [P] int64 train ids of classes; -1 becomes `IGNORE`."""
    wide = segment.astype(np.int64)
    return np.where(wide < 0, IGNORE, wide)


def _load(folder: Path, stem: str, columns: int, rows: int | None = None) -> np.ndarray:
    path = folder / f"{stem}.npy"
    array = read_npy(path)
    if array.ndim == 1 and columns == 1:
        array = array[:, None]
    kinds = "iu" if columns == 1 else "fiu"
    if array.ndim != 2 or array.shape[1] != columns or array.dtype.kind not in kinds:
        raise FileError(
            path,
            f"{'integers' if columns == 1 else 'numbers'} [P, {columns}] expected, found "
            f"{array.dtype} {list(array.shape)}",
        )
    if rows is not None and len(array) != rows:
        raise FileError(path, f"{len(array)} rows, but coord.npy has {rows} points")
    return array


_COLUMNS = 6
_LONGEST = 256  # bytes of a line that is repaired
# what the published files hold in places instead of a digit, a space or nothing
_FOREIGN = re.compile(rb"[^\x09\x0a\x0d\x20-\x7e]")
_FOREIGN_AND_SPACE = re.compile(rb"[^\x09\x0a\x0d\x20-\x7e]\s*")


def read_annotation(path: Path) -> tuple[np.ndarray, list[str]]:
    r"""Read the points of one object.

    Lines of the published set that hold a control character are repaired: without it, with a space
    in its place, or without it and the space after it, whichever first gives six numbers. Known
    are Area_5/hallway_6 (`185\x10187` for `185 187`) and Area_5/office_19 (`103.0\x100000`).
    """
    with named(path, "annotation"):
        return _read(path)


def _read(path: Path) -> tuple[np.ndarray, list[str]]:
    text = read_whole(path)
    if not text.strip():
        return np.empty((0, _COLUMNS)), []
    notes: list[str] = []
    try:
        # latin-1 keeps every byte: foreign ones fail as numbers, not as characters
        values = np.loadtxt(path, ndmin=2, comments=None, encoding="latin-1")
    except ValueError:  # some line breaks the format: find it, which takes longer
        values, notes = _line_by_line(path, text)
    if values.shape[1] != _COLUMNS:
        values, notes = _line_by_line(path, text)
    _check(path, text, values)
    return values, notes


def _line_by_line(path: Path, text: bytes) -> tuple[np.ndarray, list[str]]:
    rows, notes = [], []
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        row = _row(line)
        if row is None:
            row, repaired = _repaired(line)
            if row is None:
                raise FileError(
                    path,
                    f"line {number}: six numbers x y z r g b expected, found "
                    f"{line.strip()[:80]!r}; mend the line, or delete it to leave the point out",
                )
            notes.append(f"{path}, line {number}: {line.strip()!r} was read as {repaired!r}")
        rows.append(row)
    return np.array(rows), notes


def _repaired(line: bytes) -> tuple[list[float] | None, bytes]:
    if len(line) <= _LONGEST and _FOREIGN.search(line) is not None:
        tries = ((_FOREIGN, b""), (_FOREIGN, b" "), (_FOREIGN_AND_SPACE, b""))
        for pattern, replacement in tries:
            repaired = pattern.sub(replacement, line).strip()
            row = _row(repaired)
            if row is not None:
                return row, repaired
    return None, line


def _row(line: bytes) -> list[float] | None:
    try:
        row = [float(word) for word in line.split()]
    except ValueError:
        return None
    return row if len(row) == _COLUMNS else None


def _check(path: Path, text: bytes, values: np.ndarray) -> None:
    finite = np.isfinite(values).all(1)
    colour = ((values[:, 3:] >= 0) & (values[:, 3:] <= 255)).all(1)
    if finite.all() and colour.all():
        return
    wrong = int((~(finite & colour)).argmax())
    lines = [number for number, line in enumerate(text.split(b"\n"), 1) if line.strip()]
    rule = "a colour must lie in 0..255" if finite[wrong] else "numbers must be finite"
    raise FileError(path, f"line {lines[wrong]}: {rule}, found {values[wrong].tolist()}")


_MOST = 1 << 15  # objects that int16 tells apart


def annotation_files(folder: Path) -> list[Path]:
    """Return `Annotations/CLASS_n.txt` of a room's folder, sorted by name."""
    return sorted(
        path for path in (folder / "Annotations").glob("*.txt") if not path.name.startswith(".")
    )


def read_text_room(folder: Path) -> tuple[RoomArrays, list[str]]:
    """Read all objects of a room; they are numbered in the order of their files' names.

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


Layout = Literal["text", "arrays"]

DOWNLOAD = (
    "Fill in the form at http://buildingparser.stanford.edu/dataset.html, download "
    "Stanford3dDataset_v1.2 (or its aligned version, or Pointcept's arrays), and give the folder "
    "that holds Area_1 to Area_6 as dataset.root"
)


@dataclass(frozen=True)
class Room:
    """One room of the set."""

    name: str  # as in Area_1/office_3
    folder: Path  # where its files lie
    layout: Layout  # text as published, or arrays as Pointcept preprocesses it

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
        """Read all points; also what was repaired on the way, each with file and line."""
        if self.layout == "arrays":
            return read_array_room(self.folder), []
        return read_text_room(self.folder)


def find_rooms(root: str | Path, areas: Sequence[int] | None = None) -> list[Room]:
    """Find the rooms of some areas, sorted by area, type and number."""
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
