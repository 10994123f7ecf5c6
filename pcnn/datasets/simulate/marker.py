"""The file that says that a folder holds simulated data, and how it was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MARKER = "SIMULATED.json"

#: changes whenever the same seed would give other bytes
VERSION = "4"


def write_marker(folder: Path, record: dict[str, Any]) -> None:
    """Write the record of a set into its folder."""
    (folder / MARKER).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


def read_marker(folder: Path) -> dict[str, Any]:
    """Read the record of a simulated set.

    Raises:
        FileNotFoundError: the folder holds no simulated set.
        ValueError: the record cannot be read.
    """
    path = folder / MARKER
    try:
        record = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON ({error}); delete the folder") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path} must hold a JSON object; delete the folder")
    return record


def is_simulated(path: str | Path) -> bool:
    """Tell whether a file or folder belongs to a simulated set: a marker lies at or above it."""
    here = Path(path).resolve()
    return any((folder / MARKER).is_file() for folder in (here, *here.parents))
