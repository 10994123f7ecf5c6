"""Check the values of a configuration against the signatures they are meant for."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hydra.utils import get_object

from pcnn.experiment.errors import ConfigError, listed, nearest

PLAIN = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}


def check_arguments(
    resolved: Mapping[str, Any], written: Mapping[str, Any], where: str, given: frozenset[str]
) -> None:
    """Check one `_target_` node and all nodes inside it.

    Args:
        resolved: the node with interpolations resolved.
        written: the same node as written, so that a message names the key the user set.
        where: dotted name of the node.
        given: names that the program passes itself.

    Raises:
        ConfigError: an argument is unknown, of the wrong type, or missing.
    """
    target = get_object(resolved["_target_"])
    parameters, hints = signature(target)
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for name, value in resolved.items():
        if name in ("_target_", "_partial_", "_convert_", "_recursive_", "_args_"):
            continue
        key = origin_of(written.get(name), f"{where}.{name}")
        if name not in parameters and not open_ended:
            names = [name for name in parameters if name not in given and name != "self"]
            raise ConfigError(
                f"{key} does not exist.{nearest(name, names)}\nkeys of {where}: {listed(names)}"
            )
        if isinstance(value, Mapping) and "_target_" in value:
            inner = written.get(name)
            check_arguments(value, inner if isinstance(inner, Mapping) else value, key, given)
        elif name in hints and not accepts(value, hints[name]):
            if value is None and parameters[name].default is None:
                continue
            raise ConfigError(f"{key}={shown(value)} is not valid.\npossible: {named(hints[name])}")


def signature(target: Callable[..., Any]) -> tuple[Mapping[str, inspect.Parameter], dict[str, Any]]:
    """Parameters of a function or constructor, and those of its type hints that can be resolved."""
    function = target.__init__ if inspect.isclass(target) else target  # type: ignore[misc]
    function = inspect.unwrap(function)
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):  # a hint that exists for the type checker only
        hints = {}
    return inspect.signature(function).parameters, hints


def origin_of(written: object, key: str) -> str:
    """The key an interpolation points to, else `key`."""
    match = re.fullmatch(r"\$\{([\w.]+)\}", written) if isinstance(written, str) else None
    return match.group(1) if match else key


def accepts(value: Any, hint: Any) -> bool:
    """Whether a plain YAML value may be passed where `hint` is asked for."""
    kind = get_origin(hint) or hint
    inner = get_args(hint)
    if hint is Any or isinstance(value, Mapping):
        return True  # a mapping may become any object
    if kind in (Union, types.UnionType):
        return any(accepts(value, one) for one in inner)
    if kind is Literal:
        return value in inner
    if kind in (bool, str) or hint is type(None):
        return isinstance(value, kind)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    if not isinstance(value, (list, tuple)):
        return hint is inspect.Parameter.empty or path_like(value, kind)
    if not (inspect.isclass(kind) and issubclass(list, kind)) and kind is not tuple:
        return False
    if kind is tuple and inner and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(map(accepts, value, inner))
    return all(accepts(one, inner[0]) for one in value) if inner else True


def path_like(value: Any, kind: Any) -> bool:
    """Text stands for a path, and for nothing else that is not plain."""
    return isinstance(value, str) and inspect.isclass(kind) and hasattr(kind, "__fspath__")


def named(hint: Any) -> str:
    """A type hint in words."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(named(one) for one in get_args(hint)))
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if hint in PLAIN:
        return PLAIN[hint]
    inner = get_args(hint)
    kind = get_origin(hint) or hint
    if (inspect.isclass(kind) and issubclass(list, kind)) or kind is tuple:
        return f"[{', '.join('...' if one is Ellipsis else named(one) for one in inner)}]"
    return getattr(hint, "__name__", str(hint))


def shown(value: Any) -> str:
    """A value as it would be typed."""
    return "null" if value is None else str(value).lower() if value in (True, False) else str(value)
