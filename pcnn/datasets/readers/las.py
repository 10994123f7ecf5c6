"""LAS and LAZ files of airborne, mobile and terrestrial scanners, through laspy in a process.

Source: LAS specification 1.4 R15 (ASPRS, 2019).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.readers.columns import COLORS, PART, Columns, also_called
from pcnn.errors import FileError, MissingPackageError
from pcnn.files.arrays import forget_pages, stamp_of
from pcnn.files.bounded import check_size
from pcnn.files.whole_file import whole_file
from pcnn.messages import install

SUFFIXES = (".las", ".laz")

#: Largest intensity and colour: both are normalised to 16 bits.
FULL = 65535.0
#: A file that gives nothing for so long is damaged [s].
_SILENCE = 45
_CHILD = Path(__file__).with_name("las_child.py")


@dataclass(frozen=True, eq=False)
class LasFile:
    """The points of a file of any size, streamed by a process of their own."""

    path: Path  # the file
    points: int  # their number, as the header announces it
    unit: float  # metres in the unit of the coordinates, as the file declares it
    stamp: tuple[int, int]  # size and time of the file; one that changed is refused
    in_map = True

    def __len__(self) -> int:
        return self.points

    def parts(self, wanted: Sequence[str]) -> Iterator[Columns]:
        """The points in order, `PART` at a time, with the wanted columns that the file has.

        Colours are in 0..1; where none of a file exceeds 255 they are taken for 8 bits, which many
        programs write.
        """
        if stamp_of(self.path) != self.stamp:
            raise FileError(self.path, "it changed while it was read")
        yield from _streamed(self.path, wanted)

    def whole(self, wanted: Sequence[str]) -> Columns:
        """All points with the wanted columns."""
        return read_las(self.path, wanted)


def read_las(path: Path, wanted: Sequence[str]) -> Columns:
    """All points of a file, with the wanted columns that it has."""
    _need_packages(path)
    parts = list(_streamed(path, wanted, whole=True))
    labels = [part.labels for part in parts if part.labels is not None]
    return replace(
        parts[0],
        places=np.concatenate([part.places for part in parts]),
        values={n: np.concatenate([part.values[n] for part in parts]) for n in parts[0].values},
        labels=np.concatenate(labels) if labels else None,
    )


def _streamed(path: Path, wanted: Sequence[str], whole: bool = False) -> Iterator[Columns]:
    request = {"wanted": [also_called(name) for name in wanted], "points": True}
    with _child(path, request) as read:
        about, kind = _about(path, read)
        points = about["points"]
        if whole:
            check_size(path, points * kind.itemsize, what="its points")
        for first in range(0, max(points, 1), PART):
            count = min(PART, points - first)
            part = np.frombuffer(read(count * kind.itemsize), kind, count)
            yield _columns(path, part, about["full"], about["unit"])
        read(0)


def open_las(path: Path) -> LasFile:
    """Read the header of a file."""
    _need_packages(path)
    return _opened(path, stamp_of(path))


def _need_packages(path: Path) -> None:
    if find_spec("laspy") is None:
        raise MissingPackageError(f"{path}: LAS files need laspy: {install('las')}")
    packed = path.suffix.lower() == ".laz"
    if packed and find_spec("lazrs") is None and find_spec("laszip") is None:
        raise MissingPackageError(f"{path}: LAZ files need lazrs: {install('las')}")


@lru_cache(maxsize=64)
def _opened(path: Path, stamp: tuple[int, int]) -> LasFile:
    with _child(path, {"wanted": [], "points": False}) as read:
        about, _ = _about(path, read)
    return LasFile(path, about["points"], about["unit"], stamp)


def _about(path: Path, read: Callable[[int], bytearray]) -> tuple[dict[str, Any], np.dtype]:
    """What the process tells of a file, and the type of its records."""
    line = bytearray()
    while not line.endswith(b"\n"):
        line += read(1)
    about = json.loads(line)
    return about, np.dtype([tuple(field) for field in about["fields"]])


def _columns(path: Path, part: np.ndarray, full: float, unit: float) -> Columns:
    values = {name: part[name] for name in part.dtype.names or () if name not in ("x", "y", "z")}
    labels = values.get("classification")
    values |= {n: values[n].astype(np.float32) / full for n in COLORS if n in values}
    places = np.stack([part[axis] for axis in "xyz"], axis=1)
    kept = None if labels is None else labels.astype(np.int64)
    return Columns(path, places, values, kept, FULL, in_map=True, unit=unit)


@contextmanager
def _child(path: Path, request: dict[str, Any]) -> Iterator[Callable[[int], bytearray]]:
    """Start the process; what it writes is read by numbers of bytes, 0 waits for its end."""
    asked = json.dumps({"path": os.path.abspath(path), **request})
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}
    with (
        tempfile.TemporaryFile() as told,
        subprocess.Popen(
            [sys.executable, "-I", str(_CHILD), asked],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=told,
            start_new_session=True,
            env=environment,
        ) as process,
    ):
        assert process.stdout is not None
        output = process.stdout.fileno()
        waiting = select.poll()
        waiting.register(output, select.POLLIN | select.POLLHUP)

        def read(size: int) -> bytearray:
            found = bytearray()
            while len(found) < size or not size:
                if not waiting.poll(1000 * _SILENCE):
                    raise FileError(path, f"gives nothing for {_SILENCE} s; is it damaged?")
                block = os.read(output, min(size - len(found), 1 << 20) or 1)
                if not block:
                    break
                found += block
            if len(found) < size or (not size and process.wait()):
                raise FileError(path, f"not a whole LAS file ({_last_words(process, told)})")
            return found

        try:
            yield read
        finally:
            process.kill()


def _last_words(process: subprocess.Popen[bytes], told: Any) -> str:
    code = process.wait()
    told.seek(max(0, told.seek(0, os.SEEK_END) - 4096))
    lines = told.read().decode(errors="replace").strip().splitlines()
    said = next((line for line in lines if "memory allocation" in line), (lines or [""])[-1])
    return said[:300] if code > 0 else f"its reader ended with {code}: {said[:200]}"


def write_las_labels(
    path: Path, source: Path, labels: np.ndarray, confidence: np.ndarray | None = None
) -> None:
    """Write a copy of a file of any size with other classes, whole or not at all.

    Everything else of the points and of the header stays; of COPC files the octree goes.
    """
    points = len(open_las(source))
    if labels.shape != (points,):
        raise ValueError(f"{path}: {labels.size} labels for {points} points")
    if labels.size and not 0 <= labels.min() <= labels.max() <= 255:
        raise ValueError(
            f"{path}: classes of LAS files lie in 0..255, got {labels.min()}..{labels.max()}"
        )
    with whole_file(path) as file, tempfile.NamedTemporaryFile(dir=path.parent) as held:
        for values in (labels, confidence):
            for first in range(0, 0 if values is None else points, PART):
                assert values is not None
                held.write(values[first : first + PART].astype(np.uint8).tobytes())
                forget_pages(values)
        held.flush()
        request = {
            "target": os.path.abspath(file.name),
            "packed": path.suffix.lower() == ".laz",
            "classes": os.path.abspath(held.name),
            "most": int(labels.max(initial=0)),
            "confidence": confidence is not None,
        }
        with _child(source, request) as read:
            read(0)
