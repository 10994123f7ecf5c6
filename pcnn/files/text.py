"""Text files, bounded: lines of numbers, JSON and YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # a package that OmegaConf needs

from pcnn.errors import FileError
from pcnn.files.bounded import TEXT, YAML, named

_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII)


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
