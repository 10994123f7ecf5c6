"""A room under construction: random stream, palette, free floor, growing meshes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from pcnn.simulate.interiors.item import Item
from pcnn.simulate.interiors.paint import Palette
from pcnn.simulate.interiors.settings import RoomSettings
from pcnn.simulate.mesh import Mesh

#: turns that put the back of an item (+y) to the walls at y = depth, x = width, y = 0, x = 0
WALL_YAWS = (0.0, -np.pi / 2, np.pi, np.pi / 2)


@dataclass(eq=False)
class Site:
    """Where the parts of a room are put together; x in 0..width, y in 0..depth, z from 0."""

    rng: np.random.Generator
    settings: RoomSettings
    palette: Palette
    meshes: list[Mesh] = field(default_factory=list)
    _taken: list[tuple[float, float, float, float]] = field(default_factory=list)
    _hung: list[tuple[int, float, float, float, float]] = field(default_factory=list)
    _instances: int = 0

    def length(self, wall: int) -> float:
        """Return the length of wall 0..3 [m]."""
        return self.settings.depth if wall % 2 else self.settings.width

    def at_wall(self, wall: int, along: float, off: float) -> tuple[float, float]:
        """Return the point at `along` metres on wall 0..3, `off` metres into the room."""
        w, d = self.settings.width, self.settings.depth
        return ((along, d - off), (w - off, along), (along, off), (off, along))[wall]

    def put(
        self, mesh: Mesh, x: float = 0.0, y: float = 0.0, z: float = 0.0, yaw: float = 0.0
    ) -> None:
        """Add a mesh; each class in it becomes one object with its own instance number."""
        moved = mesh.moved(x, y, z, yaw)
        for label in np.unique(moved.raw_ids):
            self._instances += 1
            moved.instances[moved.raw_ids == label] = self._instances
        self.meshes.append(moved)

    def put_all(self, meshes: Iterable[Mesh], x: float, y: float, z: float, yaw: float) -> None:
        """Add meshes that share one pose, each an object of its own."""
        for mesh in meshes:
            self.put(mesh, x, y, z, yaw)

    def claim(self, x: float, y: float, width: float, depth: float, margin: float = 0.03) -> bool:
        """Take an axis-parallel rectangle of floor if it is free and inside the room."""
        x0, x1 = x - width / 2 - margin, x + width / 2 + margin
        y0, y1 = y - depth / 2 - margin, y + depth / 2 + margin
        if min(x0, y0) < -0.1 or x1 > self.settings.width + 0.1 or y1 > self.settings.depth + 0.1:
            return False
        if any(x0 < b and a < x1 and y0 < d and c < y1 for a, b, c, d in self._taken):
            return False
        self._taken.append((x0, x1, y0, y1))
        return True

    def stand(self, item: Item, x: float, y: float, yaw: float) -> bool:
        """Put an item on the floor if its place is free."""
        swapped = abs(np.sin(yaw)) > 0.7
        width, depth = (item.depth, item.width) if swapped else (item.width, item.depth)
        if not self.claim(x, y, width, depth):
            return False
        self.put(item.mesh, x, y, 0.0, yaw)
        return True

    def stand_at_wall(self, item: Item, tries: int = 16) -> tuple[float, float, float] | None:
        """Put an item with its back to some wall; return (x, y, yaw), or None without room."""
        for _ in range(tries):
            wall = int(self.rng.integers(4))
            slack = self.length(wall) - item.width
            if slack < 0:
                continue
            along = float(self.rng.uniform(0, slack)) + item.width / 2
            if item.height > 1.0 and not self.hang(wall, along, item.width, 0.0, item.height):
                continue
            gap = float(self.rng.uniform(0.01, 0.06))
            x, y = self.at_wall(wall, along, item.depth / 2 + gap)
            if self.stand(item, x, y, WALL_YAWS[wall]):
                return x, y, WALL_YAWS[wall]
            if item.height > 1.0:
                self._hung.pop()
        return None

    def stand_free(self, item: Item, tries: int = 8, spin: bool = False) -> bool:
        """Put an item anywhere on the floor, turned by a quarter or, if it may `spin`, freely."""
        for _ in range(tries):
            x = float(self.rng.uniform(0, self.settings.width))
            y = float(self.rng.uniform(0, self.settings.depth))
            yaw = (
                float(self.rng.uniform(-np.pi, np.pi)) if spin else WALL_YAWS[self.rng.integers(4)]
            )
            size = max(item.width, item.depth)
            if self.claim(x, y, size, size):
                self.put(item.mesh, x, y, 0.0, yaw)
                return True
        return False

    def hang(self, wall: int, along: float, width: float, low: float, high: float) -> bool:
        """Take a rectangle of a wall if it is free."""
        a, b = along - width / 2, along + width / 2
        if a < 0.0 or b > self.length(wall) or high > self.settings.height:
            return False
        if any(
            w == wall and a < d and c < b and low < f and e < high for w, c, d, e, f in self._hung
        ):
            return False
        self._hung.append((wall, a, b, low, high))
        return True

    def happens(self, share: float) -> bool:
        """Draw an event of the given probability."""
        return bool(self.rng.random() < share)

    def several(self, mean: float) -> int:
        """Draw a number of things of the given mean."""
        return int(self.rng.poisson(max(mean, 0.0)))
