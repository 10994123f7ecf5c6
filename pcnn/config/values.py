"""Plain values: which a type takes, and which of a configuration in a file are used."""

from __future__ import annotations

import functools
import inspect
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import FunctionType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pcnn.errors import ConfigError, FileError

#: What a configuration in a file may say: the network, its data, and how the network was trained.
#: Everything that runs beside it comes from our own files and from the command line.
STORED = ("model", "geometry", "engine", "task", "dataset", "augment", "tta", "seed", "data")
#: Keys of a data set whose places are this machine's to say.
LOCAL = ("data_dir",)
#: Keys whose text is a folder of data, which is read alone.
FOLDERS = ("root", "metadata", "benchmarks")
#: Values of a configuration at most, runs have some hundreds; and levels.
MAX_VALUES, MAX_DEPTH = 20_000, 64


def refusal(value: Any, hint: Any) -> str | None:
    """Why a value is not of a type, strictly as JSON has it; None where it is, or nothing tells."""
    from pydantic import ValidationError  # what only reads plain values needs no pydantic

    try:
        adapter = _adapter(hint)
        try:
            text = json.dumps(value)
        except (TypeError, ValueError):
            adapter.validate_python(value)
        else:
            adapter.validate_json(text, strict=True)
    except ValidationError as error:
        return "; or ".join(dict.fromkeys(one["msg"] for one in error.errors()))[:200]
    except Exception:  # a type that pydantic has no rule for
        return None
    return None


@functools.lru_cache(maxsize=4096)
def _adapter(hint: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
    return TypeAdapter(_of_instances(hint), config=config)


def _of_instances(hint: Any) -> Any:
    """The hint with an instance asked for where it names a dataclass, never its fields."""
    from pydantic import PlainValidator

    if isinstance(hint, type) and is_dataclass(hint):
        return Annotated[Any, PlainValidator(functools.partial(_instance, hint))]
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return functools.reduce(operator.or_, map(_of_instances, inner))
    if kind is Annotated:
        return Annotated[(_of_instances(inner[0]), *inner[1:])]
    if kind in (list, tuple, Sequence) and any(isinstance(one, type) for one in inner):
        return kind[tuple(map(_of_instances, inner))]
    return hint


def _instance(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a {kind.__name__} is needed")
    return value


def hints_of(target: Callable[..., Any]) -> dict[str, Any]:
    """Types of parameters, with their ranges; none where one of them cannot be resolved."""
    owner: Any = target
    if not isinstance(target, FunctionType) and not is_dataclass(target):
        owner = inspect.unwrap(target.__init__)  # type: ignore[misc]
    try:  # of a dataclass field by field, each in the module that names its type
        return get_type_hints(owner, include_extras=True)
    except (NameError, TypeError):
        return {}


def check_fields(owner: Any) -> None:
    """Refuse numbers and words in the fields of a dataclass that their types do not take."""
    hints = hints_of(type(owner))
    for name, hint in hints.items():
        value = getattr(owner, name, None)
        rule = refusal(value, hint) if _is_value(value) else None
        if rule is not None:
            raise ValueError(f"{name}: {str(value)[:80]} is not valid: {rule}")


def _is_value(value: Any) -> bool:
    if isinstance(value, list | tuple):  # objects are checked elsewhere
        return all(map(_is_value, value))
    return isinstance(value, bool | int | float | str)


def values_in(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Every value with its dotted key, containers among them."""
    todo = [(where, value, 0)]
    seen = 0
    while todo:
        key, value, depth = todo.pop()
        seen += 1
        if seen > MAX_VALUES or depth > MAX_DEPTH:
            raise ConfigError(key, "too large or too deep for a configuration")
        if isinstance(value, dict):
            for name, item in value.items():
                if type(name) not in (str, int):  # labels of class files are whole numbers
                    raise ConfigError(key, f"keys are names or whole numbers, not {name!r:.80}")
                todo.append((f"{key}.{name}" if key else str(name), item, depth + 1))
        elif isinstance(value, list):
            todo += [(f"{key}[{at}]", item, depth + 1) for at, item in enumerate(value)]
        elif value is not None and type(value) not in (str, int, float, bool):
            raise ConfigError(key, f"holds a {type(value).__name__}, not a plain value")
        yield key, value


def read_stored(config: Any, path: object) -> dict[str, Any]:
    """A configuration as a file holds it: resolved plain values.

    An interpolation would be resolved in the reader's environment (``${oc.env:NAME}`` tells a
    secret to the next ``config.yaml``), so a configuration that has one is refused.
    """
    if not isinstance(config, dict):
        raise FileError(path, "its configuration is no mapping")
    try:
        for key, value in values_in(config, ""):
            if isinstance(value, str) and ("${" in value or value == "???"):
                raise ConfigError(key, f"{value[:80]!r} is no resolved value")
    except ConfigError as error:
        raise FileError(path, str(error)) from error
    return {str(key): value for key, value in config.items()}


def stored(config: Any, path: object) -> dict[str, Any]:
    """The part of a configuration from a file that is used: see `STORED`."""
    kept = {key: value for key, value in read_stored(config, path).items() if key in STORED}
    dataset = kept.get("dataset")
    if isinstance(dataset, dict):
        kept["dataset"] = {key: one for key, one in dataset.items() if key not in LOCAL}
    for key, value in values_in(kept, ""):
        if not isinstance(value, str):
            continue
        folder = key.startswith("dataset.") and key.rpartition(".")[2] in FOLDERS
        away = value.startswith(("/", "~", "\\")) or ".." in Path(value).parts or "$" in value
        if "://" in value or (away and not folder and not key.startswith("data.")):
            raise FileError(path, f"{key}={value[:80]} leads out of the run; it is not followed")
    return kept


def selected(config: Mapping[Any, Any], key: str) -> Any:
    """The value of a dotted key; None where there is none."""
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
