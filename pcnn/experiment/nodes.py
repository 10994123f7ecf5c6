"""Make the object that a node of a configuration names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pcnn.experiment.arguments import signature
from pcnn.experiment.errors import MAX_LINES, ConfigError
from pcnn.experiment.targets import construct, verified
from pcnn.hints import shown

#: Raised by constructors for a value that they do not take.
REFUSALS = (ValueError, ImportError)


def make(node: Mapping[str, Any], where: str, allow: Sequence[str] = (), **given: Any) -> Any:
    """Call the node's `_target_` with its arguments and the given ones.

    Args:
        node: the node, resolved.
        where: its dotted name, which says what may stand there.
        allow: packages of the user's own.
        given: what the program passes itself.

    Raises:
        ConfigError: a target that may not stand there, or the constructor refuses a value.
    """
    checked = verified(node, where, allow)
    with refused_values(where, node):
        return construct({**checked, "_partial_": True})(**given)


@contextmanager
def refused_values(where: str = "", node: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn a refused value, which the user chose, into a short message that names its key.

    A TypeError of a library's constructor is one, of this package's it is a defect.

    Args:
        where: dotted name of the node.
        node: the node itself.

    Raises:
        ConfigError: in place of a ValueError.
    """
    node = node or {}
    try:
        yield
    except ConfigError:
        raise
    except (*REFUSALS, TypeError) as error:
        of_library = not str(node.get("_target_", "pcnn.")).startswith("pcnn.")
        if isinstance(error, TypeError) and not of_library:
            raise
        raise short(error, where, node) from error


def short(error: Exception, where: str, node: Mapping[str, Any]) -> ConfigError:
    """The first lines of an error's text, after the key that it is about."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = "\n".join(lines[:MAX_LINES]) or type(error).__name__
    set_ones = [name for name, value in node.items() if value is not None]
    names = [name for name in set_ones if re.search(rf"\b{re.escape(name)}\b", text)]
    if not names:  # or by the value, where the text tells it
        names = [name for name, one in node.items() if isinstance(one, str) and repr(one) in text]
    if len(names) == 1 and f"{where}.{names[0]}" not in text:
        value = node[names[0]]
        set_to = "" if isinstance(value, Mapping) else f"={shown(value)}"
        return ConfigError(f"{where}.{names[0]}{set_to}: {text}")
    return ConfigError(f"{where}: {text}" if where and where not in text else text)


def plain(node: DictConfig) -> dict[str, Any]:
    """A node as a dictionary, interpolations resolved."""
    resolved = OmegaConf.to_container(node, resolve=True)
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def filled(node: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The verified node, and every node in it, with the given values that its target asks for.

    A node marked `_partial_` is called by another object, which passes what it wants itself.
    """
    inner = {
        name: filled(value, given) if isinstance(value, dict) and "_target_" in value else value
        for name, value in node.items()
    }
    return inner if node.get("_partial_") else {**inner, **asked_for(node, given)}


def asked_for(node: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values that a verified node's target asks for by name and the node does not set."""
    parameters, _ = signature(node["_target_"].call)
    return {name: value for name, value in given.items() if name in parameters and name not in node}
