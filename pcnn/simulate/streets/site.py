"""A block under construction: random stream, free space, instance ids, growing meshes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pcnn.simulate.mesh import Mesh
from pcnn.simulate.streets.foliage import Foliage, Plant
from pcnn.simulate.streets.ground import Relief, height
from pcnn.simulate.streets.layout import Block
from pcnn.simulate.streets.settings import StreetSettings

#: things of one block: its instance ids are consecutive and no other block has them
INSTANCES_PER_BLOCK = 128


@dataclass(eq=False)
class Site:
    """Where the parts of a block are put together."""

    rng: np.random.Generator
    settings: StreetSettings
    block: Block
    relief: Relief
    first_instance: int
    meshes: list[Mesh] = field(default_factory=list)
    foliage: list[Foliage] = field(default_factory=list)
    _taken: list[tuple[float, float, float]] = field(default_factory=list)
    _instances: int = 0

    def new_instance(self) -> int:
        """Return an instance id that nothing else in the sequence has.

        Raises:
            RuntimeError: the block holds more things than ids were set aside for.
        """
        if self._instances == INSTANCES_PER_BLOCK:
            raise RuntimeError(f"a block holds more than {INSTANCES_PER_BLOCK} things")
        self._instances += 1
        return self.first_instance + self._instances - 1

    def ground(self, s: float, d: float) -> float:
        """Return the height of the ground at one position [m]."""
        kerb = self.settings.kerb_height
        at = height(self.block, self.relief, kerb, np.array([s]), np.array([d]))
        return float(at[0])

    def claim(self, s: float, d: float, radius: float) -> bool:
        """Take a disc of ground if it is free, inside the block and off the side street."""
        inside = self.block.s0 + 0.3 <= s <= self.block.s1 - 0.3 and not self.block.blocked(s)
        free = inside and all(
            (s - a) ** 2 + (d - b) ** 2 >= (radius + r) ** 2 for a, b, r in self._taken
        )
        if free:
            self._taken.append((s, d, radius))
        return free

    def put(
        self, what: Mesh | Plant, s: float, d: float, yaw: float = 0.0, sink: float = 0.0
    ) -> None:
        """Stand a mesh or a plant on the ground at (s, d), `sink` metres deep."""
        self.place(what, s, d, self.ground(s, d) - sink, yaw)

    def place(self, what: Mesh | Plant, s: float, d: float, z: float, yaw: float) -> None:
        """Stand a mesh or a plant at a height of its own [m]."""
        there = what.moved(s, d, z, yaw)
        if isinstance(there, Plant):
            self.foliage.append(there.leaves)
            there = there.wood
        self.meshes.append(there)

    def put_thing(self, mesh: Mesh, raw_id: int, s: float, d: float, yaw: float) -> None:
        """Stand a thing on the ground under a new instance id."""
        self.put(mesh.labelled(raw_id, self.new_instance()), s, d, yaw)

    def happens(self, share: float) -> bool:
        """Draw an event of the given probability."""
        return bool(self.rng.random() < share)
