"""A piece of furniture and the room it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pcnn.simulate.mesh import Mesh, join


@dataclass(frozen=True, eq=False)
class Item:
    """A thing that stands on z = 0 about the origin: its front looks to -y, its back to +y."""

    mesh: Mesh
    width: float  # [m] along x
    depth: float  # [m] along y
    height: float  # [m]
    surface: float | None = None  # [m] height at which small things may stand on it


def item(
    parts: Iterable[Mesh], width: float, depth: float, height: float, surface: float | None = None
) -> Item:
    """Join the parts of an item."""
    return Item(join(parts), width, depth, height, surface)
