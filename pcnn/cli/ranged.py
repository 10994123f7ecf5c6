"""Ranges of options (`pcnn.ranges`), checked before a command begins."""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import typer
from typer.models import ParameterInfo

from pcnn.hints import accepts, hints_of, named, shown

Command = TypeVar("Command", bound=Callable[..., None])


def ranged(command: Command) -> Command:
    """A command whose numbers are finite and within the ranges that their types declare.

    Typer sees the types without their ranges, which it does not know.
    """
    hints = hints_of(command)
    numbers = {name: hint for name, hint in hints.items() if is_number(hint)}

    @functools.wraps(command)
    def checked(**values: Any) -> None:
        for name, hint in numbers.items():
            value = values[name]
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if one is not None and not accepts(one, each(hint)):
                    raise typer.BadParameter(
                        f"{option(name, hint)} {shown(one)}: must be {named(each(hint))}"
                    )
        command(**values)

    signature = inspect.signature(command)
    parameters = [
        parameter.replace(annotation=plain(hints[name]) if name in numbers else hints[name])
        for name, parameter in signature.parameters.items()
    ]
    checked.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=None
    )
    return checked  # type: ignore[return-value]


def is_number(hint: Any) -> bool:
    """Whether a hint is that of numbers: one, several, or none."""
    inner = [one for one in get_args(hint) if not isinstance(one, ParameterInfo)]
    if get_origin(hint) is Annotated:
        return is_number(inner[0])
    return hint in (int, float) or any(is_number(one) for one in inner if one is not hint)


def each(hint: Any) -> Any:
    """The hint of one value of an option that may be absent, or repeated."""
    inner = get_args(hint)
    if get_origin(hint) is Annotated:
        bounds = [one for one in inner[1:] if not isinstance(one, ParameterInfo)]
        return functools.reduce(lambda kind, bound: Annotated[kind, bound], bounds, each(inner[0]))
    if get_origin(hint) in (Union, types.UnionType):
        kinds = (each(one) for one in inner if one is not type(None))
        return functools.reduce(operator.or_, kinds)
    return inner[0] if get_origin(hint) is list else hint


def plain(hint: Any) -> Any:
    """A hint without ranges; what typer is told stays."""
    inner = get_args(hint)
    if get_origin(hint) is Annotated:
        told = [one for one in inner[1:] if isinstance(one, ParameterInfo)]
        return functools.reduce(lambda kind, one: Annotated[kind, one], told, plain(inner[0]))
    if get_origin(hint) in (Union, types.UnionType):
        return functools.reduce(operator.or_, map(plain, inner))
    return list[plain(inner[0])] if get_origin(hint) is list else hint  # type: ignore[misc]


def option(name: str, hint: Any) -> str:
    """The name of an option as it is typed."""
    for one in get_args(hint):
        words = (getattr(one, "default", None), *(getattr(one, "param_decls", None) or ()))
        for word in words:
            if isinstance(word, str) and word.startswith("--"):
                return word
    return f"--{name.replace('_', '-')}"
