"""A block under construction: random stream, free space, instance ids, growing meshes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pcnn.simulate.catalogue import Catalogue
from pcnn.simulate.mesh import Mesh
from pcnn.simulate.streets.ground import Ground
from pcnn.simulate.streets.layout import Block, Side
from pcnn.simulate.streets.materials import MATERIALS, MOVING, RawId
from pcnn.simulate.streets.plants import Foliage, Plant, bush, conifer, tree
from pcnn.simulate.streets.settings import StreetSettings

#: things of one block: its instance ids are consecutive and no other block has them
INSTANCES_PER_BLOCK = 128

OBJECTS = Catalogue(
    Path(__file__).with_name("objects.yaml"), {raw.name.lower(): raw.value for raw in RawId}
)


def make(rng: np.random.Generator, name: str, instance: int = 0, moving: bool = False) -> Mesh:
    mesh = OBJECTS.make(rng, MATERIALS.get, name).mesh
    if not instance:
        return mesh
    label = int(mesh.labels[0])
    return mesh.labelled(MOVING[label] if moving else label, instance)


def footprint(mesh: Mesh) -> tuple[float, float]:
    """Return the extent (x length, y width) of a mesh [m]."""
    length, width = np.ptp(mesh.triangles.reshape(-1, 3)[:, :2], axis=0)
    return float(length), float(width)


@dataclass(eq=False)
class Site:
    """Where the parts of a block are put together."""

    rng: np.random.Generator
    settings: StreetSettings
    block: Block
    ground: Ground
    first_instance: int
    meshes: list[Mesh] = field(default_factory=list)
    foliage: list[Foliage] = field(default_factory=list)
    _taken: list[tuple[float, float, float]] = field(default_factory=list)
    _instances: int = 0

    def new_instance(self) -> int:
        if self._instances == INSTANCES_PER_BLOCK:
            raise RuntimeError(f"a block holds more than {INSTANCES_PER_BLOCK} things")
        self._instances += 1
        return self.first_instance + self._instances - 1

    def thing(self, name: str, moving: bool = False) -> Mesh:
        return make(self.rng, name, self.new_instance(), moving)

    def claim(self, s: float, d: float, radius: float) -> bool:
        inside = self.block.s0 + 0.3 <= s <= self.block.s1 - 0.3 and not self.block.blocked(s)
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

    def put(
        self, what: str | Mesh | Plant, s: float, d: float, yaw: float = 0.0, sink: float = 0.0
    ) -> None:
        self.place(what, s, d, float(self.ground.height([s], [d])[0]) - sink, yaw)

    def put_along(self, what: Mesh | Plant, side: Side, s0: float, s1: float, away: float) -> None:
        """Place an object drawn along +x so that its -y side faces the road, `away` m from it."""
        s, yaw, d = (s0, 0.0, away) if side.sign > 0 else (s1, np.pi, -away)
        # footings are deep enough for the whole length, so one height serves
        along = [s0 + 0.1, (s0 + s1) / 2, s1 - 0.1]
        self.place(what, s, d, float(self.ground.height(along, [d] * 3).min()), yaw)

    def place(self, what: str | Mesh | Plant, s: float, d: float, z: float, yaw: float) -> None:
        """Stand an object at a given height [m]."""
        if isinstance(what, Plant):
            self.foliage.append(what.leaves.moved(s, d, z, yaw))
            what = what.wood
        mesh = make(self.rng, what) if isinstance(what, str) else what
        self.meshes.append(mesh.moved(s, d, z, yaw))

    def happens(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def plant(self, s: float, d: float, conifers: float = 0.0, room: float = 0.0) -> None:
        """Plant a tree, or a conifer by a chance; where `room` [m] is asked for, if it is free."""
        if room == 0.0 or self.claim(s, d, room):
            make_one = conifer if self.happens(conifers) else tree
            self.grow(make_one(self.rng, self.settings.leaf_density), s, d)

    def plant_bush(self, s: float, d: float, room: float, scale: float = 1.0) -> None:
        if self.claim(s, d, room):
            self.grow(bush(self.rng, self.settings.leaf_density, scale), s, d)

    def grow(self, what: Plant, s: float, d: float) -> None:
        """Stand a plant on the ground, turned at random and rooted a little below."""
        self.put(what, s, d, self.rng.uniform(0, 2 * np.pi), sink=0.05)
