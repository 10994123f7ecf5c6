"""A block under construction: random stream, free space, instance ids, growing meshes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.simulate.catalogue import Catalogue
from pcnn.simulate.mesh import Mesh
from pcnn.simulate.streets.ground import Ground
from pcnn.simulate.streets.layout import Block, Side
from pcnn.simulate.streets.materials import MATERIALS, RAW_IDS
from pcnn.simulate.streets.settings import Course, Style

OBJECTS = Catalogue(Path(__file__).with_name("objects.yaml"), RAW_IDS)


def make(rng: np.random.Generator, name: str, **given: Any) -> Mesh:
    return OBJECTS.make(rng, MATERIALS.get, name, **given).mesh


def footprint(mesh: Mesh) -> tuple[float, float]:
    """The extent (x length, y width) of a mesh [m]."""
    length, width = np.ptp(mesh.triangles.reshape(-1, 3)[:, :2], axis=0)
    return float(length), float(width)


@dataclass(eq=False)
class Site:
    """Where the parts of a block are put together."""

    rng: np.random.Generator
    course: Course
    style: Style
    block: Block
    ground: Ground
    meshes: list[Mesh] = field(default_factory=list)
    _taken: list[tuple[float, float, float]] = field(default_factory=list)

    def happens(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def claim(self, s: float, d: float, radius: float) -> bool:
        """Take a disc of ground in the block, beside its side street, if it is free."""
        inside = self.block.s0 + 0.3 <= s <= self.block.s1 - 0.3 and not self.block.is_crossed(s)
        free = inside and all(
            (s - a) ** 2 + (d - b) ** 2 >= (radius + r) ** 2 for a, b, r in self._taken
        )
        if free:
            self._taken.append((s, d, radius))
        return free

    def find(self, d: float, radius: float) -> float | None:
        """Take a disc of ground somewhere along the block; return its s."""
        for _ in range(8):
            s = self.rng.uniform(self.block.s0 + 1.0, self.block.s1 - 1.0)
            if self.claim(s, d, radius):
                return s
        return None

    def put(self, what: str | Mesh, s: float, d: float, yaw: float = 0.0) -> None:
        """Stand an object on the ground."""
        mesh = make(self.rng, what) if isinstance(what, str) else what
        self.meshes.append(mesh.moved(s, d, float(self.ground.height([s], [d])[0]), yaw))

    def grow(self, plant: str | Mesh, s: float, d: float, room: float) -> None:
        """Stand a plant, turned at random, where there is room [m] for it."""
        if self.claim(s, d, room):
            self.put(plant, s, d, self.rng.uniform(0, 2 * np.pi))

    def put_along(self, what: Mesh, side: Side, s0: float, s1: float, away: float) -> None:
        """Place an object about the origin, whose -y side faces the road, `away` m from it."""
        d = side.sign * away
        # footings are deep enough for the whole length, so one height serves
        height = float(self.ground.height([s0 + 0.1, (s0 + s1) / 2, s1 - 0.1], [d] * 3).min())
        self.meshes.append(what.moved((s0 + s1) / 2, d, height, 0.0 if side.sign > 0 else np.pi))
