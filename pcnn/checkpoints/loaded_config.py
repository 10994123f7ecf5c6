"""Configurations in files: plain values, read without anything being resolved.

A checkpoint may come from another person. Values of its configuration are taken as written:
an interpolation would be resolved in the reader's environment (`${oc.env:NAME}` tells a secret to
the next `config.yaml`), so a configuration that has one is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pcnn.errors import FileError

#: Values of a configuration at most; runs have some hundreds.
MAX_VALUES = 20_000
MAX_DEPTH = 64
#: Keys that are for the command line or for Hydra, never for a configuration in a file.
_NEVER = ("hydra", "defaults", "allow_targets")


def check_plain(value: Any, where: str = "config") -> None:
    """Raise unless `value` is built of dict, list, str, int, float, bool and None alone.

    Raises:
        TypeError: names the first key whose value `torch.load(weights_only=True)` would refuse.
        ValueError: it has no end, or is too large for a configuration.
    """
    for _ in values_in(value, where):
        pass


def loaded_config(config: Any, path: object) -> dict[str, Any]:
    """A copy of a configuration as a file holds it.

    Args:
        config: as it was read.
        path: the file, for messages.

    Raises:
        FileError: names the key of what is no plain value, of an interpolation, or of what is not
            a file's to say.
    """
    if not isinstance(config, dict):
        raise FileError(path, "its configuration is no mapping")
    for key in config:
        if str(key).partition("/")[0] in _NEVER:
            raise FileError(path, f"a configuration in a file has no key {str(key)[:80]!r}")
    try:
        for where, value in values_in(config, ""):
            if isinstance(value, str) and "${" in value:
                raise ValueError(
                    f"{where}={value[:80]!r} is an interpolation; stored values are resolved"
                )
            if value == "???":
                raise ValueError(f"{where} has no value")
    except (TypeError, ValueError) as error:
        raise FileError(path, str(error)) from error
    return copy.deepcopy(config)


def values_in(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Every value of a configuration with its dotted name, containers among them.

    Raises:
        TypeError: a value of another kind.
        ValueError: too many, or too deep.
    """
    todo = [(where, value, 0)]
    seen = 0
    while todo:
        where, value, depth = todo.pop()
        seen += 1
        if seen > MAX_VALUES or depth > MAX_DEPTH:
            raise ValueError(f"{where}: too large or too deep for a configuration")
        if isinstance(value, dict):
            for key, item in value.items():
                # labels of class files are whole numbers
                if type(key) not in (str, int):
                    raise TypeError(f"{where}: keys are names or whole numbers, got {key!r}")
                todo.append((f"{where}.{key}" if where else str(key), item, depth + 1))
        elif isinstance(value, list):
            todo += [(f"{where}[{i}]", item, depth + 1) for i, item in enumerate(value)]
        elif value is not None and type(value) not in (str, int, float, bool):
            raise TypeError(
                f"{where} is a {type(value).__name__}; a checkpoint takes plain values only. "
                "Resolve the configuration to a dict first (OmegaConf.to_container(resolve=True))"
            )
        yield where, value
