"""LAS and LAZ files of airborne, mobile and terrestrial scanners, through laspy in a process.

Source: LAS specification 1.4 R15 (ASPRS, 2019).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np

from pcnn.datasets.readers.columns import COLORS, PART, Columns, also_called
from pcnn.errors import FileError, MissingPackageError
from pcnn.files.bounded import check_size, forget_pages, stamp_of
from pcnn.files.whole_file import whole_file
from pcnn.messages import install

SUFFIXES = (".las", ".laz")

#: Largest intensity and colour: both are normalised to 16 bits.
FULL = 65535.0
#: A file that gives nothing for so long, and for so many more bytes a second, is damaged [s].
_SILENCE, _SPEED = 45, 5e6
_CHILD = Path(__file__).with_name("las_child.py")


@dataclass(frozen=True, eq=False)
class LasFile:
    """The points of a file of any size, streamed by a process of their own."""

    path: Path  # the file
    stamp: tuple[int, int]  # size and time of the file; one that changed is refused
    in_map = True

    def __len__(self) -> int:
        return _points_of(self.path, self.stamp)

    def parts(self, wanted: Sequence[str], whole: bool = False) -> Iterator[Columns]:
        """The points in order, `PART` at a time, with the wanted columns that the file has."""
        if stamp_of(self.path) != self.stamp:
            raise FileError(self.path, "it changed while it was read")
        with _child(self.path, wanted=[also_called(name) for name in wanted]) as read:
            about = _about(read)
            kind, points = np.dtype([tuple(field) for field in about["fields"]]), about["points"]
            if whole:
                check_size(self.path, points * kind.itemsize, what="its points")
            for first in range(0, max(points, 1), PART):
                count = min(PART, points - first)
                part = np.frombuffer(read(count * kind.itemsize), kind, count)
                yield self._columns(part, about["full"])
            read(-1)

    def whole(self, wanted: Sequence[str]) -> Columns:
        parts = list(self.parts(wanted, whole=True))
        labels = [part.labels for part in parts if part.labels is not None]
        return replace(
            parts[0],
            places=np.concatenate([part.places for part in parts]),
            values={n: np.concatenate([part.values[n] for part in parts]) for n in parts[0].values},
            labels=np.concatenate(labels) if labels else None,
        )

    def _columns(self, part: np.ndarray, full: float) -> Columns:
        values = {
            name: part[name] for name in part.dtype.names or () if name not in ("x", "y", "z")
        }
        labels = values.get("classification")
        values |= {n: values[n].astype(np.float32) / full for n in COLORS if n in values}
        places = np.stack([part[axis] for axis in "xyz"], axis=1)
        kept = None if labels is None else labels.astype(np.int64)
        return Columns(self.path, places, values, kept, FULL, in_map=True)


def open_las(path: Path) -> LasFile:
    if find_spec("laspy") is None:
        raise MissingPackageError(f"{path}: LAS files need laspy: {install('las')}")
    packed = path.suffix.lower() == ".laz"
    if packed and find_spec("lazrs") is None and find_spec("laszip") is None:
        raise MissingPackageError(f"{path}: LAZ files need lazrs: {install('las')}")
    return LasFile(path, stamp_of(path))


@lru_cache(maxsize=64)
def _points_of(path: Path, stamp: tuple[int, int]) -> int:
    with _child(path, wanted=None) as read:
        return int(_about(read)["points"])


def _about(read: Callable[[int], bytes]) -> Any:
    """What the process tells of a file in its first line."""
    line = b""
    while not line.endswith(b"\n"):
        line += read(1)
    return json.loads(line)


@contextmanager
def _child(path: Path, **request: Any) -> Iterator[Callable[[int], bytes]]:
    """Start the process; what it writes is read by numbers of bytes, -1 waits for its end."""
    asked = json.dumps({"path": os.path.abspath(path), **request})
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}
    patience = _SILENCE + os.stat(path).st_size / _SPEED
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

        def read(size: int) -> bytes:
            assert process.stdout is not None
            clock = Timer(patience, process.kill)
            clock.start()
            try:
                found = process.stdout.read(size)
                if len(found) < size or (size < 0 and process.wait()):
                    code = process.wait()
                    told.seek(max(0, told.seek(0, os.SEEK_END) - 4096))
                    lines = told.read().decode(errors="replace").strip().splitlines() or [""]
                    said = next((line for line in lines if "memory allocation" in line), lines[-1])
                    end = said if code > 0 else f"its reader ended with {code}: {said}"
                    raise FileError(path, f"not a whole LAS file ({end[:300]})")
            finally:
                clock.cancel()
            return found

        try:
            yield read
        finally:
            process.kill()


def write_las_labels(path: Path, source: Path, labels: np.ndarray) -> None:
    """Write a copy of a file of any size with other classes, whole or not at all."""
    points = len(open_las(source))
    if labels.shape != (points,):
        raise ValueError(f"{path}: {labels.size} labels for {points} points")
    if labels.size and not 0 <= labels.min() <= labels.max() <= 255:
        raise ValueError(
            f"{path}: classes of LAS files lie in 0..255, got {labels.min()}..{labels.max()}"
        )
    with whole_file(path) as file, tempfile.NamedTemporaryFile(dir=path.parent) as held:
        for first in range(0, points, PART):
            held.write(labels[first : first + PART].astype(np.uint8).tobytes())
            forget_pages(labels)
        held.flush()
        request = {
            "target": os.path.abspath(file.name),
            "packed": path.suffix.lower() == ".laz",
            "classes": os.path.abspath(held.name),
            "most": int(labels.max(initial=0)),
        }
        with _child(source, **request) as read:
            read(-1)
