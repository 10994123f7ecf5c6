"""Rows of numbers as text, a line a point, read in parts so that memory follows the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pcnn.errors import FileError

_LINES = 1 << 14  # a part
_WORD = 64  # characters of a number


def number_rows(
    path: Path, body: bytes, kind: np.dtype, count: int, first: int, exact: bool = True
) -> np.ndarray:
    """Rows of numbers, one a line; blank lines are skipped.

    Args:
        path: the file, for errors.
        body: the lines.
        kind: structured type of a row, one number a field.
        count: rows.
        first: number of the first line in the file.
        exact: refuse lines behind the last row.

    Returns:
        [count] of the type.

    Raises:
        FileError: another number of lines or words, a word that is no number, or one that its type
            cannot hold; names the line.
    """
    names = kind.names or ()
    lines = [(n, line) for n, line in enumerate(body.splitlines(), first) if not line.isspace()]
    lines = [(n, line) for n, line in lines if line]
    if len(lines) < count or (exact and len(lines) > count):
        wrong = "truncated: " if len(lines) < count else ""
        raise FileError(
            path,
            f"{wrong}the header says {count} points of {len(names)} numbers, the file has "
            f"{len(lines)} lines of them",
        )
    points = np.empty(count, kind)
    for start in range(0, count, _LINES):
        part = lines[start : min(start + _LINES, count)]
        rows = []
        for number, line in part:
            words = line.split(None, len(names))
            if len(words) != len(names) or max(map(len, words)) > _WORD:
                raise FileError(
                    path,
                    f"line {number}: want {len(names)} numbers, found {_shown(line, len(names))}",
                )
            rows.append(words)
        for column, name in enumerate(names):
            words = [row[column] for row in rows]
            points[name][start : start + len(part)] = _column(path, part, words, kind[name], name)
    return points


def _column(
    path: Path, lines: list[tuple[int, bytes]], words: list[bytes], kind: np.dtype, name: str
) -> np.ndarray:
    try:
        table = np.array(words, dtype="S")
        return table.astype(np.float64 if kind.kind == "f" else kind)
    except (ValueError, OverflowError) as error:
        number, word = next(
            (n, word) for (n, _), word in zip(lines, words, strict=True) if not _is(word, kind)
        )
        raise FileError(
            path, f"line {number}: {name} must be a number of type {kind}, found {word!r}"
        ) from error


def _is(word: bytes, kind: np.dtype) -> bool:
    try:
        np.array([word], dtype="S").astype(np.float64 if kind.kind == "f" else kind)
    except (ValueError, OverflowError):
        return False
    return True


def _shown(line: bytes, most: int) -> str:
    count = len(line[: most * (_WORD + 1) + _WORD].split())
    return f"{count} in {line[:80]!r}"
