"""The file that marks the folder of a simulated set and records how it was made."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from pcnn.errors import FileError
from pcnn.files.bounded import read_json

MARKER = "SIMULATED.json"


def write_marker(folder: Path, record: dict[str, Any]) -> None:
    (folder / MARKER).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


def read_marker(folder: Path) -> dict[str, Any]:
    path = folder / MARKER
    record = read_json(path)
    if not isinstance(record, dict):
        raise FileError(path, "it must hold a JSON object; delete the folder")
    return record


def is_simulated(path: str | Path) -> bool:
    """Tell whether a file or folder belongs to a simulated set: a marker lies at or above it."""
    here = Path(os.path.realpath(path))  # which takes a link to itself
    return any((folder / MARKER).is_file() for folder in (here, *here.parents))


def kind_of(path: str | Path) -> Literal["real", "simulated"]:
    """Return the kind of data that a file or folder holds; see `is_simulated`."""
    return "simulated" if is_simulated(path) else "real"
