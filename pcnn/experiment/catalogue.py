"""The catalogue of trained weights: which there are, where they come from, and their files here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcnn.checkpoints.exported_file import SUFFIX
from pcnn.errors import MissingFileError
from pcnn.files.bounded import named, read_json

#: Folder of the weights that come with the package.
SHIPPED = Path(__file__).parents[1] / "weights"
#: File of the catalogue in such a folder.
CATALOGUE = "catalogue.json"

#: Clouds up to this span are taken for rooms, larger ones for streets [m].
ROOMS_UP_TO = 20.0


@dataclass(frozen=True)
class Weights:
    """An entry of the catalogue."""

    name: str  # what it is called
    version: str  # of the file; another file has another one
    task: str  # segmentation or registration
    licence: str  # of the weights, as SPDX writes it
    source: str  # real or simulated, what it was trained on
    trained_on: str  # the data set, in words
    classes: tuple[str, ...]  # names of the classes of a segmentation


def catalogue() -> dict[str, Weights]:
    """The weights that come with the package, by name."""
    with named(SHIPPED / CATALOGUE, "catalogue of weights"):
        entries: dict[str, dict[str, Any]] = read_json(SHIPPED / CATALOGUE)
        return {
            name: Weights(**{"name": name, **entry, "classes": tuple(entry["classes"])})
            for name, entry in entries.items()
        }


def weights_file(model: str | Path) -> Path:
    """The file that a name of shipped weights or a path stands for."""
    shipped = SHIPPED / f"{model}{SUFFIX}"
    if Path(model).name == str(model) and shipped.is_file():
        return shipped
    if Path(model).is_file():
        return Path(model)
    names = ", ".join(sorted(path.stem for path in SHIPPED.glob(f"*{SUFFIX}")))
    raise MissingFileError(model, f"no such checkpoint, and no weights of that name ({names})")


def scene_of(spans: Sequence[float]) -> tuple[bool, str]:
    """Whether clouds are of a room, by the one that spans most, and what they span in words."""
    least, most = min(spans, default=0.0), max(spans, default=0.0)
    subject = "the cloud spans" if len(spans) == 1 else "the clouds span"
    indoors = most <= ROOMS_UP_TO
    if indoors or least > ROOMS_UP_TO:
        return indoors, f"{subject} {most:.3g} m"
    # a pair of two kinds has no network of its own: say so, the user may have mixed up files
    return indoors, f"{subject} {least:.3g} to {most:.3g} m"
