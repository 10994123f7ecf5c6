"""The rooms of S3DIS, `root/Area_k/TYPE_n`: the published text, or the same as arrays."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.columns import rounded_points
from pcnn.datasets.s3dis.classes import CLASS_NAMES, CLUTTER
from pcnn.errors import FileError, MissingFileError
from pcnn.files.arrays import read_npy
from pcnn.files.bounded import named, read_whole
from pcnn.files.whole_file import whole_file

log = logging.getLogger(__name__)

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
    is_text: bool  # as published; else arrays

    @property
    def area(self) -> int:
        """Number of the area."""
        return int(self.name.partition("/")[0].removeprefix("Area_"))

    def files(self) -> list[Path]:
        """Return the files that training reads."""
        return annotation_files(self.folder) if self.is_text else _arrays(self.folder)

    def read(self) -> Cloud:
        """Read all points in the building's frame [m], colours in 0..1, one of 13 classes."""
        read = read_text_room if self.is_text else read_array_room
        points, colors, labels = read(self.folder)
        if not len(points):
            tell(f"{self.folder}: the room {self.name} holds no points")
        return Cloud(
            torch.from_numpy(points),
            torch.from_numpy(colors.astype(np.float32) / 255),
            torch.from_numpy(labels),
            self.name,
            str(self.folder),
            torch.arange(len(points)),
        )


@lru_cache(maxsize=1 << 12)
def tell(text: str) -> None:
    """Say in the log what is odd about a file, once."""
    log.warning("%s", text)


_Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
#: Types and columns of the arrays; written in this order, so that coordinates come last.
_KINDS = {"instance": ("<i2", 1), "segment": ("<i2", 1), "color": ("|u1", 3), "coord": ("<f4", 3)}
#: Those that are read, and the numbers in them; -1 where Pointcept's files say "none".
_RANGES = {"coord": (-1e7, 1e7), "color": (0, 255), "segment": (-1, len(CLASS_NAMES) - 1)}


def read_array_room(folder: Path) -> _Arrays:
    """Points [P, 3] float32, colours [P, 3] uint8 and train ids [P] of a room of arrays."""
    found: dict[str, np.ndarray] = {}
    for stem, (low, high) in _RANGES.items():
        path, columns = folder / f"{stem}.npy", _KINDS[stem][1]
        array = read_npy(path)
        array = array[:, None] if array.ndim == 1 else array
        rows = len(found.get("coord", array))
        if array.shape != (rows, columns) or array.dtype.kind not in (
            "iu" if columns == 1 else "fiu"
        ):
            told = f"[{rows}, {columns}] numbers are due, found {array.dtype} {list(array.shape)}"
            raise FileError(path, told)
        if rows and not (array.min() >= low and array.max() <= high):  # NaN fails too
            raise FileError(path, f"numbers must lie in {low:g}..{high:g}")
        found[stem] = rounded_points(array, path) if stem == "coord" else np.rint(array)
    labels = found["segment"][:, 0].astype(np.int64)
    return found["coord"], found["color"].astype(np.uint8), np.where(labels < 0, IGNORE, labels)


def write_array_room(folder: Path, **arrays: np.ndarray) -> None:
    """Write coord, color, segment and instance as Pointcept does; every file whole or not."""
    for stem, (kind, columns) in _KINDS.items():
        if stem in arrays:
            with whole_file(folder / f"{stem}.npy") as file:
                np.save(file, np.ascontiguousarray(arrays[stem].reshape(-1, columns), dtype=kind))


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
    """Six numbers of a line, which is repaired where it must be."""
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


def annotation_files(folder: Path) -> list[Path]:
    """Return `Annotations/CLASS_n.txt` of a room's folder, sorted by name."""
    files = (folder / "Annotations").glob("*.txt")
    return sorted(path for path in files if not path.name.startswith("."))


def read_text_room(folder: Path) -> _Arrays:
    """The same as `read_array_room` of all objects, in the order of their files' names.

    A file whose class is none of the 13 (the published set has stairs) is clutter, as everywhere.
    """
    files = annotation_files(folder)
    if not files:
        raise MissingFileError(folder / "Annotations", "it holds no CLASS_n.txt")
    parts, labels = [], []
    for path in files:
        parts.append(read_annotation(path))
        name = path.stem.rpartition("_")[0] or path.stem
        if name not in CLASS_NAMES:
            tell(f"{path}: class {name!r} is none of the 13, read as clutter")
        labels.append(CLASS_NAMES.index(name) if name in CLASS_NAMES else CLUTTER)
    values = np.concatenate(parts)
    colors = np.rint(values[:, 3:]).astype(np.uint8)
    numbers = np.repeat(np.array(labels, np.int64), [len(part) for part in parts])
    return rounded_points(values[:, :3], folder), colors, numbers


def find_rooms(root: str | Path, areas: Sequence[int]) -> list[Room]:
    """Find the rooms of some areas, sorted by area, type and number."""
    found, broken = [], []
    for area in areas:
        folder = Path(root) / f"Area_{area}"
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{root} lacks Area_{area}. dataset.allow_missing=true uses the areas that are "
                f"there. {DOWNLOAD}"
            )
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
    return [folder / f"{stem}.npy" for stem in _RANGES]


def _by_number(path: Path) -> tuple[str, int, str]:
    stem, _, number = path.name.rpartition("_")
    return stem, int(number) if number.isdecimal() else -1, path.name
