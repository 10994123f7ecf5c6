"""Tables of tuned dataflows on disk: the user's own, and those that come with the package."""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from pathlib import Path

from pcnn.dataflows.tuning_table import TuningTable
from pcnn.errors import FileError, MissingFileError
from pcnn.files.bounded import named
from pcnn.files.locked import locked
from pcnn.files.text import read_json
from pcnn.files.user_cache import user_cache

#: Tables that come with the package, one a device.
SHIPPED = Path(__file__).parents[1] / "tuned"


def user_path() -> Path:
    """The user's own table, in the user's cache folder (XDG base directories)."""
    return user_cache() / "pcnn" / "tuned.json"


def shipped_path(device_name: str) -> Path:
    """Where the table of a device lies that comes with the package."""
    return SHIPPED / (re.sub(r"[^a-z0-9]+", "_", device_name.lower()).strip("_") + ".json")


def read(path: Path) -> TuningTable:
    """The table of a file; empty where there is none.

    A file that is damaged, or of another version, counts as empty, and a warning says so.
    """
    try:
        content = read_json(path)
        with named(path, "table of tuned dataflows"):
            return TuningTable.of_plain(content)
    except MissingFileError:
        return TuningTable()
    except FileError as error:
        warnings.warn(
            f"{path} is not used: {error.rule}. The next pcnn.tune replaces it.",
            RuntimeWarning,
            stacklevel=2,
        )
        return TuningTable()


def save(path: Path, table: TuningTable) -> TuningTable:
    """Add decisions to a file; those that other processes wrote meanwhile stay.

    The file is written under a temporary name, then renamed: readers see all of it or nothing.
    Where it cannot be written a warning says so.
    """
    try:
        with locked(path.with_name(f".{path.name}.lock")):
            merged = read(path).updated(table)
            _write(path, _text(merged))
    except OSError as error:
        warnings.warn(
            f"what was tuned cannot be stored ({error}): the next process tunes again. Make the "
            f"folder of {path} writable, or name another file.",
            RuntimeWarning,
            stacklevel=2,
        )
        return table
    return merged


def _text(table: TuningTable) -> str:
    """JSON with one row a line, so that two versions of a file can be compared."""
    plain = table.plain()
    lists = {name: ",\n".join(map(json.dumps, plain[name])) for name in ("rows", "layouts")}
    parts = (f'"{name}": [\n{rows}\n]' for name, rows in lists.items() if rows or name == "rows")
    return f'{{"format": {plain["format"]}, {", ".join(parts)}}}\n'


def _write(path: Path, text: str) -> None:
    number, part = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(number, "w") as file:
            file.write(text)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
