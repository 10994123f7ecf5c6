"""Square tiles of LAS clouds, cut ahead of a training."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.preparation import Preparation, State
from pcnn.datasets.readers import las
from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.files.text import read_json
from pcnn.files.whole_file import whole_file


class Tiles:
    """The squares ``floor(x / size), floor(y / size)`` of a cloud.

    Args:
        places: [P, 2 or more] x, y, ... [m].
        size: edge of a square [m].

    Raises:
        ValueError: a size that is not positive.
    """

    def __init__(self, places: np.ndarray, size: float) -> None:
        if not 0 < size < float("inf"):
            raise ValueError(f"tiles need a positive edge [m], got {size}")
        self.size = size
        self.places = places[:, :2]
        cells = np.floor(self.places / size).astype(np.int64)  # [P, 2]
        self.numbers, tile = np.unique(cells, axis=0, return_inverse=True)
        self._order = np.argsort(tile.reshape(-1), kind="stable")
        counts = np.bincount(tile.reshape(-1), minlength=len(self.numbers))
        self._starts = np.concatenate([[0], counts.cumsum()])

    def __len__(self) -> int:
        """Number of squares that hold points."""
        return len(self.numbers)

    def rows(self, number: int) -> np.ndarray:
        """Return the points of a square, rising."""
        return self._order[self._starts[number] : self._starts[number + 1]]


@dataclass(frozen=True)
class CutTiles(Preparation):
    """Cut LAS clouds into square files ``NAME_I_J.laz``, whose corners are multiples of the size.

    A list of its tiles, ``.NAME.tiles``, is written after the last of them; a cloud is done when
    the list is there, all its files are, and the cloud has not changed.

    Args:
        root: the clouds' places below it are kept.
        clouds: ``.las`` and ``.laz`` files below the root.
        target: folder to write.
        size: edge of a tile [m].
        least: tiles of fewer points are left out.
    """

    root: Path
    clouds: tuple[Path, ...]
    target: Path
    size: float
    least: int = 1

    def __len__(self) -> int:
        return len(self.clouds)

    def name(self, index: int) -> str:
        """Place of the cloud below the root."""
        return self.clouds[index].relative_to(self.root).as_posix()

    def do(self, index: int) -> tuple[State, tuple[str, ...]]:
        """Cut a cloud."""
        source = self.clouds[index]
        place = self.target / source.relative_to(self.root).with_suffix("")
        done = place.with_name(f".{place.name}.tiles")
        stat = source.stat()
        stamp = [stat.st_size, stat.st_mtime_ns, self.size, self.least]
        if _is_done(done, stamp):
            return "kept", ()
        whole = las.read_las(source)
        if not len(whole):
            raise FileError(source, "no points")
        tiles = Tiles(whole.places(), self.size)
        names, small = [], 0
        for number, (i, j) in enumerate(tiles.numbers.tolist()):
            rows = tiles.rows(number)
            if len(rows) < self.least:
                small += len(rows)
                continue
            names.append(f"{place.name}_{i}_{j}.laz")
            whole.copy(place.with_name(names[-1]), rows)
        with whole_file(done) as file:
            file.write(json.dumps({"stamp": stamp, "tiles": names}).encode())
        if not small:
            return "made", ()
        return "made", (f"{source}: {small} points in tiles of fewer than {self.least} left out",)


def _is_done(done: Path, stamp: list[Any]) -> bool:
    try:
        record = read_json(done)
        with named(done, "list of tiles"):
            return record["stamp"] == stamp and all(
                done.with_name(name).is_file() for name in record["tiles"]
            )
    except FileError:
        return False
