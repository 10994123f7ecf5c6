"""The classes and functions that a configuration may name, place by place.

A configuration may come from a file of another person: a checkpoint, a run folder. So a `_target_`
in it is looked up only where it belongs to the packages of its place; nothing else is ever
imported. It is called only where it is a subclass of the place's base class, or a function that is
listed by its full name. Code of the user's own is let in by `allow_targets` on the command line
alone. docs/security.md says what is trusted.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any

from omegaconf import DictConfig

from pcnn.errors import first_line
from pcnn.experiment.errors import ConfigError, listed
from pcnn.experiment.places import PLACES, RENAMED, Place
from pcnn.hints import shown

#: Keys of a node beside its arguments. Others of Hydra's (`_args_`, `_convert_`, ...) are refused.
OF_NODE = ("_target_", "_partial_")
_OF_HYDRA = ("_args_", "_convert_", "_recursive_")
_LONGEST = 120  # characters of a refused name that a message shows


@dataclass(frozen=True)
class Target:
    """A class or function that was looked up and may be called.

    Args:
        name: as the configuration names it.
        call: the class or function.
    """

    name: str
    call: Callable[..., Any] = field(repr=False)

    def __str__(self) -> str:
        return self.name


def allowed_packages(cfg: DictConfig) -> tuple[str, ...]:
    """`allow_targets` of a configuration: packages of the user's own."""
    return tuple(map(str, cfg.get("allow_targets") or ()))


def check_allowed(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Check that `allow_targets` was given on the command line, not by a file.

    Raises:
        ConfigError: it was not, or holds another thing than names of packages.
    """
    packages = allowed_packages(cfg)
    if packages and not any(text.lstrip("+").startswith("allow_targets=") for text in overrides):
        raise ConfigError(
            f"allow_targets=[{listed(packages)}] comes from a file.\n"
            "possible: on the command line alone, where you say which code you trust"
        )
    check_packages(packages)


def check_packages(packages: Sequence[str]) -> None:
    """Check that every one is a dotted name.

    Raises:
        ConfigError: one is not.
    """
    for package in packages:
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", package):
            raise ConfigError(
                f"allow_targets={package!r} is not valid.\n"
                "possible: names of packages, as allow_targets=[my_package]"
            )


def place_of(where: str) -> Place:
    """The place of a node, by its dotted name in the configuration."""
    root, *names = where.split(".")
    if root in ("callbacks", "logger"):
        names = names[1:]
    elif root == "dataset" and names[:1] == ["tasks"]:
        names = names[2:]
    place = PLACES[root]
    for name in names:
        place = place if name.isdigit() else PLACES[place.inner[name]]
    return place


def verified(
    node: Any, where: str, allow: Sequence[str] = (), place: Place | None = None
) -> dict[str, Any]:
    """A node whose targets, those inside it too, are looked up and allowed.

    Args:
        node: resolved, plain.
        where: its dotted name.
        allow: packages of the user's own.
        place: what may stand there; None goes by ``where``.

    Returns:
        The node with a `Target` as every `_target_`. Nothing was called.

    Raises:
        ConfigError: a target that may not stand in its place.
    """
    place = place or place_of(where)
    target = node.get("_target_")
    if not isinstance(target, Target):  # what the program itself put there passes
        target = looked_up(target, where, place, allow)
    for key in _OF_HYDRA:
        if key in node:
            raise ConfigError(f"{where}.{key} is not valid.\npossible: arguments by their names")
    if type(node.get("_partial_", False)) is not bool:
        raise ConfigError(f"{where}._partial_ is not valid.\npossible: true or false")
    own = is_within(target.name, allow)
    found: dict[str, Any] = {}
    for name, value in node.items():
        # an argument of a class of the user's own may hold what the class itself may be
        inner = PLACES[place.inner[name]] if name in place.inner else place if own else None
        found[name] = _inner(value, f"{where}.{name}", allow, inner)
    return {**found, "_target_": target}


def _inner(value: Any, where: str, allow: Sequence[str], place: Place | None) -> Any:
    if isinstance(value, (list, tuple)):
        return [_inner(one, f"{where}.{number}", allow, place) for number, one in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    marks = [str(key) for key in (*OF_NODE, *_OF_HYDRA) if key in value]
    if not marks:
        return {key: _inner(one, f"{where}.{key}", allow, place) for key, one in value.items()}
    if place is None:
        raise ConfigError(
            f"{where}.{marks[0]}={_short(value[marks[0]])} is refused: "
            "this argument takes no object.\npossible: a plain value"
        )
    return verified(value, where, allow, place)


def looked_up(
    name: Any, where: str, place: Place | None = None, allow: Sequence[str] = ()
) -> Target:
    """The class or function of a name, if it may stand in its place.

    Args:
        name: dotted.
        where: dotted name of the node.
        place: what may stand there; None goes by ``where``.
        allow: packages of the user's own.

    Raises:
        ConfigError: it may not, or does not exist.
    """
    place = place or place_of(where)
    key = f"{where}._target_={_short(name)}"
    if not isinstance(name, str) or not re.fullmatch(r"\w+(\.\w+)+", name, re.ASCII):
        raise ConfigError(
            f"{key} is not valid: a dotted name is needed, as {place.example}.\n{_own(place)}"
        )
    current = RENAMED.get(name, name)
    if not is_within(current, (*place.packages, *place.functions, *allow)):
        raise ConfigError(f"{key} is refused: {place} is needed.\n{_own(place)}")
    module, _, attribute = current.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key} is not valid: {first_line(error)}") from error
    home = f"{getattr(found, '__module__', '')}.{getattr(found, '__qualname__', '')}"
    if inspect.isclass(found):
        fits = place.holds(found)
        # a package may import classes of others
        fits &= is_within(home, (*place.packages, *place.homes, *allow))
    else:
        fits = current in place.functions
        fits |= isinstance(found, FunctionType) and is_within(home, allow)
    if not fits:
        raise ConfigError(f"{key} is refused: {place} is needed.\n{_own(place)}")
    return Target(current, found)


def is_within(name: str, packages: Sequence[str]) -> bool:
    """True where a dotted name is one of the packages or lies in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def construct(node: Any) -> Any:
    """The object of a verified node, those inside it made first; a `_partial_` one is not called.

    Values are passed as they are: no interpolation is resolved.
    """
    if isinstance(node, list):
        return [construct(one) for one in node]
    if not isinstance(node, dict):
        return node
    values = {key: construct(one) for key, one in node.items() if key not in OF_NODE}
    target = node.get("_target_")
    if target is None:
        return values
    return partial(target.call, **values) if node.get("_partial_") else target.call(**values)


def _own(place: Place) -> str:
    return (
        f"possible: {place.example}; code of your own that you trust: "
        "allow_targets=[my_package] on the command line (pcnn: --allow-targets my_package)"
    )


def _short(value: Any) -> str:
    text = shown(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
