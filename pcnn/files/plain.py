"""Files of plain values: JSON and YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # a package that OmegaConf needs

from pcnn.errors import FileError
from pcnn.files.limits import YAML
from pcnn.files.named import named
from pcnn.files.text import read_text


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        MissingFileError: no such file.
        FileError: no JSON.
    """
    with named(path, "JSON file"):
        return json.loads(read_text(path))


def read_yaml(path: Path) -> Any:
    """What a YAML file of plain values holds.

    A key given twice is refused, of which PyYAML would keep the last without a word, and so are
    aliases (``*name``), by which a small file describes a huge value.

    Raises:
        MissingFileError: no such file.
        FileError: no YAML of this kind.
    """
    text = read_text(path, YAML)
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
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            found = self.construct_object(key, deep=True)
            try:
                twice = found in seen
            except TypeError as error:
                raise yaml.MarkedYAMLError(
                    problem="a key must be a plain value", problem_mark=key.start_mark
                ) from error
            if twice:
                raise yaml.MarkedYAMLError(
                    problem=f"{found} is given twice", problem_mark=key.start_mark
                )
            seen.add(found)
        return super().construct_mapping(node, deep)
