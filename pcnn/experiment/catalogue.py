"""The catalogue of trained weights: which there are, where they come from, and their files here."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcnn.checkpoints.exported_file import SUFFIX
from pcnn.errors import FileError, UserError
from pcnn.files.bounded import named
from pcnn.files.text import read_json

#: Folder of the weights that come with the package.
SHIPPED = Path(__file__).parents[1] / "weights"
#: File of the catalogue in such a folder.
CATALOGUE = "catalogue.json"

#: Clouds up to this span are taken for rooms, larger ones for streets [m].
ROOMS_UP_TO = 20.0


class NoWeightsError(UserError, FileNotFoundError):
    """A name stands for no weights on this machine."""


@dataclass(frozen=True)
class Weights:
    """An entry of the catalogue."""

    name: str  # what it is called
    version: str  # of the file; another file has another one
    task: str  # segmentation or registration
    sha256: str  # of the file, in hexadecimal digits
    bytes: int  # size of the file
    licence: str  # of the weights, as SPDX writes it
    source: str  # real or simulated, what it was trained on
    trained_on: str  # the data set, in words
    classes: tuple[str, ...]  # names of the classes of a segmentation


def catalogue(folder: Path = SHIPPED) -> dict[str, Weights]:
    """Entries by name; none where the folder has no catalogue."""
    path = folder / CATALOGUE
    if not path.is_file():
        return {}
    with named(path, "catalogue of weights"):
        entries: dict[str, dict[str, Any]] = read_json(path)
        return {
            name: Weights(**{"name": name, **entry, "classes": tuple(entry["classes"])})
            for name, entry in entries.items()
        }


def weights_file(model: str | Path, folder: Path = SHIPPED) -> Path:
    """The file that a name of the catalogue or a path stands for."""
    entries, name = catalogue(folder), str(model)
    if name in entries:
        path = folder / f"{name}{SUFFIX}"
        if not path.is_file():
            raise NoWeightsError(f"{path}: the weights are missing; install again")
        check_sum(path, entries[name])
        return path
    if Path(model).is_file():
        return Path(model)
    raise NoWeightsError(
        f"{model}: no such checkpoint, and no weights of that name ({', '.join(entries)})"
    )


def check_sum(path: Path, weights: Weights) -> None:
    """Compare a file with its entry; a file is read once, as long as it stays the same."""
    found = path.stat()
    told = _sum(path, found.st_ino, found.st_size, found.st_mtime_ns)
    if told != weights.sha256:
        raise FileError(
            path,
            f"its SHA-256 is {told[:16]}..., the catalogue says {weights.sha256[:16]}... for "
            f"{weights.name} {weights.version}; install it again",
        )


@functools.lru_cache(maxsize=16)
def _sum(path: Path, inode: int, size: int, changed: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True)
class Scene:
    """Where clouds seem to have been scanned."""

    indoors: bool  # whether it is a room
    spans: str  # in words, as in "the cloud spans 3.1 m"


def scene_of(spans: Sequence[float]) -> Scene:
    """The scene of clouds, by the one that spans most."""
    least, most = min(spans, default=0.0), max(spans, default=0.0)
    subject = "the cloud spans" if len(spans) == 1 else "the clouds span"
    indoors = most <= ROOMS_UP_TO
    if indoors or least > ROOMS_UP_TO:
        return Scene(indoors, f"{subject} {most:.3g} m")
    # a pair of two kinds has no network of its own: say so, the user may have mixed up files
    return Scene(indoors, f"{subject} {least:.3g} to {most:.3g} m")
