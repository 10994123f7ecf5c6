"""What a geometry, a map or a tensor prints: one line of what the host knows, never values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def one_line(thing: object, **facts: Any) -> str:
    """``Name(fact=value, ...)``, as a dataclass prints itself."""
    inside = ", ".join(f"{name}={value}" for name, value in facts.items())
    return f"{type(thing).__name__}({inside})"


def per_axis(values: Sequence[float]) -> str:
    """A number for each axis: one where they agree, else three."""
    return f"{values[0]:g}" if len(set(values)) == 1 else f"({', '.join(f'{v:g}' for v in values)})"
