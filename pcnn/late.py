"""Public names of a package that are imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def late(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package; homes: its names, by module (``.module``: below it)."""
    found = {name: module for module, names in homes.items() for name in names}

    def of_home(name: str) -> Any:
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(found[name], package), name)

    return of_home
