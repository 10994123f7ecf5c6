"""LAS and LAZ files of airborne, mobile and terrestrial scanners, through laspy.

laspy and lazrs run in a process of their own (`las_process.py`), behind a check of the counts and
offsets that a file announces (`las_header.py`).

Source: LAS specification 1.4 R15 (ASPRS, 2019).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from math import prod
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from pcnn.datasets.readers.las_header import check_las
from pcnn.datasets.readers.las_process import Limits, las_process
from pcnn.datasets.readers.table import COLORS, PointTable
from pcnn.errors import FileError, MissingPackageError
from pcnn.extras import install
from pcnn.files.bounded import LIMIT, check_size
from pcnn.files.mapped import forget_pages
from pcnn.files.rows import StoredRows
from pcnn.files.whole_file import whole_file

SUFFIXES = (".las", ".laz")

#: Largest intensity and colour: both are normalised to 16 bits.
FULL = 65535.0

#: Points whose classes are written at a time, and memory for a part in the process that reads.
_PART = 1 << 20
_PART_MEMORY = 3 << 30


@dataclass(frozen=True)
class LasCloud:
    """The points of a file, in the process that read it; columns are fetched when they are needed.

    Args:
        path: the file.
        points: their number P.
        names: of their properties ("dimensions").
        stamp: size and time of the file; one that changed is refused.
        limits: what a request may take.
    """

    path: Path
    points: int
    names: tuple[str, ...]
    stamp: tuple[int, int]
    limits: Limits

    def __len__(self) -> int:
        return self.points

    def places(self) -> np.ndarray:
        """x, y, z [P, 3] float64 [m]."""
        return self._column(None)

    def column(self, name: str) -> np.ndarray:
        """Values [P] of a property; colours in 0..1.

        Colours are normalised to 16 bits; where none of a file exceeds 255 they are taken for 8
        bits, which many programs write.
        """
        if name not in COLORS:
            return self._column(name)
        found = {colour: self._column(colour) for colour in COLORS}
        top = max((int(values.max()) for values in found.values() if len(self)), default=0)
        return found[name].astype(np.float32) / (255.0 if top <= 255 else FULL)

    def copy(self, path: Path, rows: np.ndarray | None = None) -> None:
        """Write a copy, whole or not at all; the suffix says whether it is compressed.

        Args:
            path: the file.
            rows: [R] numbers of the points that it gets; None takes all.

        Raises:
            MissingPackageError: laspy, or for LAZ lazrs, is not installed.
            OSError: the file cannot be written.
            FileError: the source changed, or cannot be read any more.
        """
        _need_packages(path)
        payload = b"" if rows is None else np.ascontiguousarray(rows, dtype=np.int64).tobytes()
        with whole_file(path) as file:
            self._ask(
                {
                    "task": "copy",
                    "target": os.path.abspath(file.name),
                    "packed": path.suffix.lower() == ".laz",
                    "rows": None if rows is None else len(rows),
                },
                payload,
            )

    def _column(self, name: str | None) -> np.ndarray:
        found, data = self._ask({"task": "column", "name": name})
        kind, shape = np.dtype(found["dtype"]), tuple(found["shape"])
        assert kind.kind in "biuf"
        if shape[:1] != (self.points,) or prod(shape) * kind.itemsize != len(data):
            raise FileError(self.path, f"{shape[0]} points, {self.points} before: it changed")
        return np.frombuffer(data, kind).reshape(shape)

    def _ask(self, request: dict[str, Any], payload: bytes = b"") -> tuple[dict[str, Any], Any]:
        if _stamp(self.path) != self.stamp:
            raise FileError(self.path, "it changed while it was read")
        return _ask(self.path, self.stamp, request, self.limits, payload)


def read_las(path: Path, limits: Limits | None = None, max_gib: float = LIMIT) -> LasCloud:
    """Read all points of a file.

    Args:
        path: the file.
        limits: of memory and time; None lets them follow the number of points.
        max_gib: largest size of the points, not compressed [GiB].

    Raises:
        MissingPackageError: laspy, or for LAZ lazrs, is not installed.
        OSError: the file cannot be read.
        FileError: no LAS file, or a truncated or damaged one, or one that takes more than the
            limits.
    """
    _need_packages(path)
    stamp = _stamp(path)
    size = check_las(path)
    check_size(path, size.points * size.record, max_gib, "its points, not compressed,")
    limits = limits or Limits.of(size.points * size.record)
    found, _ = _ask(path, stamp, {"task": "open"}, limits)
    if found["points"] != size.points:
        raise FileError(
            path,
            f"truncated: the header announces {size.points} points, the file holds "
            f"{found['points']}",
        )
    return LasCloud(path, size.points, tuple(found["names"]), stamp, limits)


@dataclass(frozen=True)
class LasParts:
    """The points of a file of any size, of which a part is held at a time.

    Args:
        path: the file.
        points: their number P, as the header announces it.
        names: of their properties.
        stamp: size and time of the file; one that changed is refused.
        rows: x, y, z and intensity of points that are not compressed: records of one size, which
            need no library, and which several threads may read.
        placing: scale factors of x, y, z, then their offsets [m].
    """

    path: Path
    points: int
    names: tuple[str, ...]
    stamp: tuple[int, int]
    rows: StoredRows | None
    placing: tuple[float, ...]

    def __len__(self) -> int:
        return self.points

    def part(self, first: int, count: int) -> PointTable:
        """Points from ``first`` on; columns as those of `LasCloud`.

        Raises:
            FileError: the file changed, or holds fewer points than its header announces.
        """
        count = min(count, self.points - first)
        rows = None if self.rows is None else self.rows.read(first, count)

        def column(name: str | None) -> np.ndarray:
            if name == "intensity" and rows is not None:
                return rows[name]
            task = {"task": "part", "first": first, "count": count, "name": name}
            found, data = self._ask(task)
            kind, shape = np.dtype(found["dtype"]), tuple(found["shape"])
            assert kind.kind in "biuf"
            if shape[:1] != (count,) or prod(shape) * kind.itemsize != len(data):
                raise FileError(
                    self.path,
                    f"truncated: the header announces {self.points} points, the file has "
                    f"{first + shape[0]}",
                )
            values = np.frombuffer(data, kind).reshape(shape)
            if name in COLORS:
                return values.astype(np.float32) / (255.0 if self.largest_colour <= 255 else FULL)
            return values

        places = column(None) if rows is None else self._places(rows)
        return PointTable(self.path, places, self.names, column, intensity_max=FULL, in_map=True)

    def _places(self, rows: np.ndarray) -> np.ndarray:
        places = np.empty((len(rows), 3))
        for axis, name in enumerate("xyz"):
            np.multiply(rows[name], self.placing[axis], out=places[:, axis])
            places[:, axis] += self.placing[3 + axis]
        return places

    @cached_property
    def largest_colour(self) -> int:
        """Largest number of the colours of all points; one pass over the file."""
        found, _ = self._ask({"task": "largest", "names": list(COLORS)})
        return int(found["largest"])

    def classified(
        self, path: Path, classes: np.ndarray, confidence: np.ndarray | None = None
    ) -> None:
        """Write a copy with other classes, whole or not at all; everything else stays.

        Args:
            path: the file; its suffix says whether it is compressed.
            classes: [P] integers in 0..255; where they need more than the 5 bits of point formats
                0-5, the format with 8 bits takes their place.
            confidence: [P] uint8, 255 times the probability of the class; written as a property
                ``confidence`` in 0..1, a byte a point.

        Raises:
            MissingPackageError: laspy, or for LAZ lazrs, is not installed.
            OSError: the file cannot be written.
            FileError: the source changed, or cannot be read.
        """
        _need_packages(path)
        with whole_file(path) as file, NamedTemporaryFile(dir=path.parent, prefix=".") as held:
            most = -1
            for first in range(0, len(classes), _PART):
                some = classes[first : first + _PART]
                most = max(most, int(some.max()))
                held.write(some.astype(np.uint8).tobytes())
                forget_pages(classes)
            if confidence is not None:
                for first in range(0, len(confidence), _PART):
                    held.write(confidence[first : first + _PART].tobytes())
                    forget_pages(confidence)
            held.flush()
            self._ask(
                {
                    "task": "classify",
                    "target": os.path.abspath(file.name),
                    "packed": path.suffix.lower() == ".laz",
                    "classes": os.path.abspath(held.name),
                    "most": most,
                    "confidence": confidence is not None,
                }
            )

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        if _stamp(self.path) != self.stamp:
            raise FileError(self.path, "it changed while it was read")
        size = check_las(self.path)
        # by memory of a part, and by time of all of them
        limits = Limits.of(size.points * size.record)
        limits = Limits(min(limits.memory, _PART_MEMORY), limits.seconds)
        return _ask(self.path, self.stamp, request, limits)


def open_las(path: Path) -> LasParts:
    """Read the header of a file.

    Raises:
        MissingPackageError: laspy, or for LAZ lazrs, is not installed.
        OSError: the file cannot be read.
        FileError: no LAS file, or a truncated one.
    """
    _need_packages(path)
    stamp = _stamp(path)
    size = check_las(path)
    rows = None
    if not size.packed:
        fields = {"x": ("<i4", 0), "y": ("<i4", 4), "z": ("<i4", 8), "intensity": ("<u2", 12)}
        kind = np.dtype(
            {
                "names": list(fields),
                "formats": [kind for kind, _ in fields.values()],
                "offsets": [offset for _, offset in fields.values()],
                "itemsize": size.record,
            }
        )
        rows = StoredRows(path, size.start, kind, size.points, (), stamp)
    parts = LasParts(path, size.points, (), stamp, rows, size.placing)
    found, _ = parts._ask({"task": "header"})
    return replace(parts, names=tuple(found["names"]))


def write_las_labels(
    path: Path, source: Path, labels: np.ndarray, confidence: np.ndarray | None = None
) -> None:
    """Write a copy of a file of any size with other classes, whole or not at all.

    Everything else of the points and of the header stays.

    Args:
        path: the file; its suffix says whether it is compressed.
        source: the file to copy.
        labels: [P] integers in 0..255.
        confidence: [P], as of `LasParts.classified`.

    Raises:
        MissingPackageError: as `read_las`.
        ValueError: as `read_las`, or labels that do not fit.
    """
    _need_packages(path)
    las = open_las(source)
    labels = np.asarray(labels)
    if labels.shape != (len(las),):
        raise ValueError(f"{path}: {labels.size} labels for {len(las)} points")
    if labels.size and not 0 <= labels.min() <= labels.max() <= 255:
        raise ValueError(
            f"{path}: classes of LAS files lie in 0..255, got {labels.min()}..{labels.max()}"
        )
    las.classified(path, labels, confidence)


def _ask(
    path: Path,
    stamp: tuple[int, int],
    request: dict[str, Any],
    limits: Limits,
    payload: bytes = b"",
) -> tuple[dict[str, Any], Any]:
    place = os.path.abspath(path)
    file = {"path": place, "stamp": [place, *stamp]}
    return las_process(os.getpid()).ask(path, {**request, **file}, limits, payload)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _need_packages(path: Path) -> None:
    """Look for the packages of a file's format, without importing them."""
    if find_spec("laspy") is None:
        raise MissingPackageError(f"{path}: LAS files need laspy: {install('las')}")
    packed = path.suffix.lower() == ".laz"
    if packed and find_spec("lazrs") is None and find_spec("laszip") is None:
        raise MissingPackageError(f"{path}: LAZ files need lazrs: {install('las')}")
