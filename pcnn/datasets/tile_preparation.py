"""LAS clouds cut into tiles of the size that a network trains on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcnn.datasets import las
from pcnn.datasets.preparation import Preparation, State
from pcnn.datasets.tiles import Tiles
from pcnn.datasets.whole_file import whole_file
from pcnn.errors import FileError
from pcnn.files.named import named
from pcnn.files.plain import read_json


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
