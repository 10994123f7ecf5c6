"""One object's points: a text file with a line `x y z r g b` a point."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from pcnn.errors import FileError
from pcnn.files.limits import read_whole
from pcnn.files.named import named

_COLUMNS = 6
_LONGEST = 256  # bytes of a line that is repaired
# what the published files hold in places instead of a digit, a space or nothing
_FOREIGN = re.compile(rb"[^\x09\x0a\x0d\x20-\x7e]")
_FOREIGN_AND_SPACE = re.compile(rb"[^\x09\x0a\x0d\x20-\x7e]\s*")


def read_annotation(path: Path) -> tuple[np.ndarray, list[str]]:
    r"""Read the points of one object.

    Lines of the published set that hold a control character are repaired: without it, with a space
    in its place, or without it and the space after it, whichever first gives six numbers. Known
    are Area_5/hallway_6 (`185\x10187` for `185 187`) and Area_5/office_19 (`103.0\x100000`).

    Args:
        path: `CLASS_n.txt`; may be empty.

    Returns:
        [P, 6] float64: x, y, z [m], red, green, blue in 0..255; and a note on every repaired line.

    Raises:
        MissingFileError: no such file.
        FileError: a line that holds no six finite numbers, or a colour out of 0..255; with file
            and line.
    """
    with named(path, "annotation"):
        return _read(path)


def _read(path: Path) -> tuple[np.ndarray, list[str]]:
    text = read_whole(path)
    if not text.strip():
        return np.empty((0, _COLUMNS)), []
    notes: list[str] = []
    try:
        # latin-1 keeps every byte: foreign ones fail as numbers, not as characters
        values = np.loadtxt(path, ndmin=2, comments=None, encoding="latin-1")
    except ValueError:  # some line breaks the format: find it, which takes longer
        values, notes = _line_by_line(path, text)
    if values.shape[1] != _COLUMNS:
        values, notes = _line_by_line(path, text)
    _check(path, text, values)
    return values, notes


def _line_by_line(path: Path, text: bytes) -> tuple[np.ndarray, list[str]]:
    rows, notes = [], []
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        row = _row(line)
        if row is None:
            row, repaired = _repaired(line)
            if row is None:
                raise FileError(
                    path,
                    f"line {number}: six numbers x y z r g b expected, found "
                    f"{line.strip()[:80]!r}; mend the line, or delete it to leave the point out",
                )
            notes.append(f"{path}, line {number}: {line.strip()!r} was read as {repaired!r}")
        rows.append(row)
    return np.array(rows), notes


def _repaired(line: bytes) -> tuple[list[float] | None, bytes]:
    if len(line) <= _LONGEST and _FOREIGN.search(line) is not None:
        tries = ((_FOREIGN, b""), (_FOREIGN, b" "), (_FOREIGN_AND_SPACE, b""))
        for pattern, replacement in tries:
            repaired = pattern.sub(replacement, line).strip()
            row = _row(repaired)
            if row is not None:
                return row, repaired
    return None, line


def _row(line: bytes) -> list[float] | None:
    try:
        row = [float(word) for word in line.split()]
    except ValueError:
        return None
    return row if len(row) == _COLUMNS else None


def _check(path: Path, text: bytes, values: np.ndarray) -> None:
    finite = np.isfinite(values).all(1)
    colour = ((values[:, 3:] >= 0) & (values[:, 3:] <= 255)).all(1)
    if finite.all() and colour.all():
        return
    wrong = int((~(finite & colour)).argmax())
    lines = [number for number, line in enumerate(text.split(b"\n"), 1) if line.strip()]
    rule = "a colour must lie in 0..255" if finite[wrong] else "numbers must be finite"
    raise FileError(path, f"line {lines[wrong]}: {rule}, found {values[wrong].tolist()}")
