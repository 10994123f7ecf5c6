"""Check the values of a configuration against the signatures they are meant for."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from hydra.utils import get_object

from pcnn.experiment.errors import ConfigError, listed, nearest
from pcnn.experiment.libraries import library_hints, missing_package
from pcnn.experiment.targets import OF_NODE, Target
from pcnn.hints import accepts, hints_of, named, shown
from pcnn.ranges import ArgumentsOf


def check_arguments(
    resolved: Mapping[str, Any], written: Mapping[str, Any], where: str, given: frozenset[str]
) -> None:
    """Check one `_target_` node and all nodes inside it.

    Args:
        resolved: the node with interpolations resolved, its targets looked up
            (`pcnn.experiment.targets.verified`).
        written: the same node as written, so that a message names the key the user set.
        where: dotted name of the node.
        given: names that the program passes itself.

    Raises:
        ConfigError: an argument is unknown, of the wrong type, or out of range.
    """
    target: Target = resolved["_target_"]
    absent = missing_package(target.name)
    if absent is not None:
        raise ConfigError(f"{where} {absent}")
    parameters, hints = signature(target.call)
    values = {name: value for name, value in resolved.items() if name not in OF_NODE}
    hints = {**hints, **library_hints(target.name)}
    check_values(values, written, where, given, parameters, hints)
    if resolved.get("_partial_"):  # its caller passes the rest
        return
    lacking = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        and name not in {"self", *given, *values}
    ]
    if lacking:
        raise ConfigError(f"{where} lacks {listed(lacking)}, which {target} needs a value of")


def check_values(
    values: Mapping[str, Any],
    written: Mapping[str, Any],
    where: str,
    given: frozenset[str],
    parameters: Mapping[str, inspect.Parameter],
    hints: Mapping[str, Any],
) -> None:
    """Check arguments of one function; those above, and its parameters and hints."""
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for name, value in values.items():
        key = origin_of(written.get(name), f"{where}.{name}")
        if name not in parameters and not open_ended:
            names = [name for name in parameters if name not in given and name != "self"]
            raise ConfigError(
                f"{key} does not exist.{nearest(name, names)}\nkeys of {where}: {listed(names)}"
            )
        inner = written.get(name)
        if isinstance(value, Mapping) and "_target_" in value:
            check_arguments(value, inner if isinstance(inner, Mapping) else value, key, given)
            continue
        for number, node in nodes_in(value):
            check_arguments(node, node, f"{key}.{number}", given)
        hint = hints.get(name, Any)
        if not accepts(value, hint) and (
            value is not None or name not in parameters or parameters[name].default is not None
        ):
            raise invalid(key, value, hint)
        function = arguments_of(hint)
        if function is not None and isinstance(value, Mapping):
            check_values(value, {}, key, frozenset(), *signature(function))


def invalid(key: str, value: Any, hint: Any) -> ConfigError:
    """The message for a value that its type does not accept."""
    return ConfigError(f"{key}={shown(value)} is not valid.\npossible: {named(hint)}")


def nodes_in(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The nodes in a list, numbered."""
    for number, one in enumerate(value if isinstance(value, list) else ()):
        if isinstance(one, Mapping) and "_target_" in one:
            yield number, one


def arguments_of(hint: Any) -> Callable[..., Any] | None:
    """The function whose arguments a mapping of this type holds."""
    if get_origin(hint) is Annotated:
        for one in get_args(hint)[1:]:
            if isinstance(one, ArgumentsOf):
                return get_object(one.function)  # type: ignore[no-any-return]
    if get_origin(hint) in (Union, types.UnionType):
        return next(filter(None, map(arguments_of, get_args(hint))), None)
    return None


def signature(target: Callable[..., Any]) -> tuple[Mapping[str, inspect.Parameter], dict[str, Any]]:
    """Parameters of a function or constructor, and those of its type hints that can be resolved."""
    function = target.__init__ if inspect.isclass(target) else target  # type: ignore[misc]
    function = inspect.unwrap(function)
    return inspect.signature(function).parameters, hints_of(function)


def origin_of(written: object, key: str) -> str:
    """The key an interpolation points to, else `key`."""
    match = re.fullmatch(r"\$\{([\w.]+)\}", written) if isinstance(written, str) else None
    return match.group(1) if match else key
