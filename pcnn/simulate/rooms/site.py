"""A room under construction: random stream, palette, free floor, growing meshes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.s3dis_labels import CLASS_NAMES
from pcnn.simulate.catalogue import Catalogue, Thing
from pcnn.simulate.mesh import Floats, Mesh, surface
from pcnn.simulate.rooms.paint import Palette
from pcnn.simulate.rooms.room import RoomSettings

#: labels of S3DIS by class name
LABELS = {name: label for label, name in enumerate(CLASS_NAMES)}
#: turns that put the back of a thing (+y) to the walls at y = depth, x = width, y = 0, x = 0
WALL_YAWS = (0.0, -np.pi / 2, np.pi, np.pi / 2)

OBJECTS = Catalogue(Path(__file__).with_name("objects.yaml"), LABELS)


@dataclass(eq=False)
class Site:
    """Where the parts of a room are put together; x in 0..width, y in 0..depth, z from 0."""

    rng: np.random.Generator
    settings: RoomSettings
    palette: Palette
    meshes: list[Mesh] = field(default_factory=list)
    _taken: list[tuple[float, float, float, float]] = field(default_factory=list)
    _hung: list[tuple[int, float, float, float, float]] = field(default_factory=list)

    def happens(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def several(self, mean: float, least: int = 0) -> int:
        return max(int(self.rng.poisson(max(mean, 0.0))), least)

    def make(self, name: str, **given: Any) -> Thing:
        return OBJECTS.make(self.rng, self.palette.find, name, **given)

    def length(self, wall: int) -> float:
        """The length of wall 0..3 [m]."""
        return self.settings.depth if wall % 2 else self.settings.width

    def at_wall(self, wall: int, along: float, off: float = 0.0) -> tuple[float, float]:
        """The point at `along` metres on wall 0..3, `off` metres into the room."""
        w, d = self.settings.width, self.settings.depth
        return ((along, d - off), (w - off, along), (along, off), (off, along))[wall]

    def put(
        self, mesh: Mesh, x: float = 0.0, y: float = 0.0, z: float = 0.0, yaw: float = 0.0
    ) -> None:
        """Add a mesh; each class in it becomes one object with its own instance number."""
        moved = mesh.moved(x, y, z, yaw)
        moved.instances[:] = 16 * (len(self.meshes) + 1) + moved.labels  # 13 classes
        self.meshes.append(moved)

    def build(self, triangles: Floats, paint: str | int, label: str) -> None:
        number = self.palette.draw(paint) if isinstance(paint, str) else paint
        self.put(surface(triangles, number, LABELS[label]))

    def claim(self, x: float, y: float, width: float, depth: float, margin: float = 0.03) -> bool:
        """Take a rectangle of floor if it is free."""
        x0, x1 = x - width / 2 - margin, x + width / 2 + margin
        y0, y1 = y - depth / 2 - margin, y + depth / 2 + margin
        if min(x0, y0, self.settings.width - x1, self.settings.depth - y1) < -0.04:
            return False
        if any(x0 < b and a < x1 and y0 < d and c < y1 for a, b, c, d in self._taken):
            return False
        self._taken.append((x0, x1, y0, y1))
        return True

    def stand(self, thing: Thing, x: float, y: float, yaw: float, margin: float = 0.03) -> bool:
        swapped = abs(np.sin(yaw)) > 0.7
        width, depth = (thing.depth, thing.width) if swapped else (thing.width, thing.depth)
        if not self.claim(x, y, width, depth, margin):
            return False
        self.put(thing.mesh, x, y, 0.0, yaw)
        return True

    def stand_at_wall(self, thing: Thing, tries: int = 16) -> tuple[float, float, float] | None:
        """Put a thing with its back to some wall; return (x, y, yaw), or None without room."""
        for _ in range(tries):
            wall = int(self.rng.integers(4))
            slack = self.length(wall) - thing.width
            if slack < 0:
                continue
            along = self.rng.uniform(0, slack) + thing.width / 2
            tall = thing.height > 1.0
            if tall and not self.hang(wall, along, thing.width, 0.0, thing.height):
                continue
            x, y = self.at_wall(wall, along, thing.depth / 2 + self.rng.uniform(0.01, 0.06))
            if self.stand(thing, x, y, WALL_YAWS[wall]):
                return x, y, WALL_YAWS[wall]
            if tall:
                self._hung.pop()
        return None

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

    def hang_anywhere(self, thing: Thing, middle: float, tries: int) -> None:
        for _ in range(tries):
            wall = int(self.rng.integers(4))
            along = self.rng.uniform(0, self.length(wall))
            low, high = middle - thing.height, middle + thing.height
            if self.hang(wall, along, thing.width, low, high):
                self.put(thing.mesh, *self.at_wall(wall, along), middle, WALL_YAWS[wall])
                return
