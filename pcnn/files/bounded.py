"""Files read within bounds: arrays, text, JSON, YAML; one error for all that can go wrong."""

from __future__ import annotations

import errno
import json
import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]  # a package that OmegaConf needs

from pcnn.errors import FileError, MissingFileError, MissingPackageError, UserError

GIB = 1 << 30

#: Largest size of a file's numbers in memory, and of the file itself [GiB].
LIMIT = 8.0

#: Largest text file that lists things: poses, pairs, classes, a configuration [bytes].
TEXT = 64 << 20

#: Largest YAML file, which takes ten seconds to read [bytes].
YAML = 1 << 20


def check_size(path: object, size: int, what: str = "the file") -> None:
    """Refuse what would take more memory than the limit."""
    if size > LIMIT * GIB:
        raise FileError(path, f"{what} takes {size / GIB:,.1f} GiB, the limit is {LIMIT:g} GiB")


def read_whole(path: Path) -> bytes:
    check_size(path, path.stat().st_size)
    return path.read_bytes()


#: Characters of a library's own words that are shown.
_SHOWN = 300
#: A full disk is no fault of the file that is read.
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def named(path: object, kind: str) -> Iterator[None]:
    """Let every error of the block name the file."""
    try:
        yield
    except (FileError, MissingPackageError):
        raise
    except FileNotFoundError as error:
        raise MissingFileError(path, "no such file") from error
    except MemoryError as error:
        raise FileError(path, "reading it needs more memory than there is") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # else a library's own
            if error.errno in _FULL:
                raise
            raise FileError(path, f"cannot be read ({error.strerror})") from error
        text = " ".join(str(error).split())[:_SHOWN]
        if isinstance(error, UserError) or text.startswith((f"{path}: ", f"{path}, ")):
            raise FileError(path, str(error).removeprefix(str(path)).lstrip(":, ")) from error
        if not isinstance(error, ValueError) or not text:  # its words alone say little
            text = f"{type(error).__name__} {text}"
        raise FileError(path, f"not a whole {kind} ({text.strip()})") from error


def read_npy(path: Path) -> np.ndarray:
    """The array of a file, which is mapped first: what its header claims allocates nothing."""
    with named(path, ".npy file"):
        check_size(path, path.stat().st_size)
        try:
            held = np.load(path, mmap_mode="r")
        except MemoryError as error:  # of Python's parser
            raise FileError(path, "not a whole .npy file: its header cannot be read") from error
        if not isinstance(held, np.memmap) or held.offset + held.nbytes != path.stat().st_size:
            raise FileError(path, "not a whole .npy file: its bytes are not those of one array")
        return np.array(held)


def forget_pages(*arrays: np.ndarray) -> None:
    """Let pages of mapped files count as memory of this process no more; the values stay.

    Arrays in memory are left alone. None may be mapped by copy on write, in mode ``c``.
    """
    for values in arrays:
        base: object = values
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap):
            base.madvise(mmap.MADV_DONTNEED)


_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
#: One way to read a row of digits: with two, a long one takes the square of its length.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII)


def read_text(path: Path, most: int = TEXT) -> str:
    with named(path, "text file"):
        size = path.stat().st_size
        if size > most:
            raise FileError(path, f"{size} bytes are too many for its kind ({most} at most)")
        content = path.read_bytes()
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise FileError(path, f"line {line}: no UTF-8 text (byte {error.start})") from error


def numbered_lines(path: Path) -> list[tuple[int, str]]:
    """Lines that are not blank, with their numbers in the file, from 1."""
    found = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            found.append((number, line.strip()))
    return found


def whole_number(path: Path, line: int, word: str, what: str) -> int:
    if not _WHOLE.fullmatch(word) or int(word) < 0:
        raise FileError(path, f"line {line}: {what} is a whole number from 0 on, not {word[:40]!r}")
    return int(word)


def finite_numbers(path: Path, line: int, words: Sequence[str], count: int) -> list[float]:
    if len(words) != count:
        raise FileError(path, f"line {line}: want {count} numbers, found {len(words)}")
    values = []
    for word in words:
        value = float(word) if _NUMBER.fullmatch(word.lower()) else None
        if value is None or not abs(value) < float("inf"):
            raise FileError(path, f"line {line}: want {count} finite numbers, found {word[:40]!r}")
        values.append(value)
    return values


def read_json(path: Path) -> Any:
    with named(path, "JSON file"):
        return json.loads(read_text(path))


def read_yaml(path: Path) -> Any:
    """Content of a YAML file of plain values."""
    return parsed_yaml(read_text(path, YAML), path)


def parsed_yaml(text: str, path: Path) -> Any:
    with named(path, "YAML file"):
        try:
            return yaml.load(text, _Plain)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f"line {mark.line + 1}: " if mark else ""
            raise FileError(path, f"{line}not YAML ({error.problem or error.context})") from error
        except yaml.YAMLError as error:
            raise FileError(path, f"not YAML ({' '.join(str(error).split())})") from error


class _Plain(yaml.SafeLoader):  # type: ignore[misc]
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="aliases are not taken", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        found = super().construct_mapping(node, deep)
        if len(found) < len(node.value):
            raise yaml.MarkedYAMLError(
                problem="a key is given twice in this mapping", problem_mark=node.start_mark
            )
        return found
