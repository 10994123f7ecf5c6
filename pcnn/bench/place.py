"""A scene and a kernel, with the oracle's triplets for all that is measured there."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch

from pcnn.bench import oracle
from pcnn.bench.rows import Row
from pcnn.bench.scenes import Scene
from pcnn.geometry import Geometry, Kernel, VoxelGrid

#: Settings that tell rows apart.
Params = Mapping[str, int | float | str]
#: Voxels or points.
G = TypeVar("G", bound=Geometry)


@dataclass(frozen=True, eq=False)
class Place:
    """A scene and a kernel.

    Args:
        workload: name of the scene.
        grid: its voxels or points, on the device.
        kernel: the relation, on native points of stride 1.
    """

    workload: str
    grid: Geometry
    kernel: Kernel

    @classmethod
    def of(cls, scene: Scene, kernel: Kernel, device: torch.device) -> Place:
        """Place of a scene on a device."""
        return cls(scene.name, scene.grid.to(device), kernel)

    @cached_property
    def target(self) -> Geometry:
        """Output sites."""
        return self.grid.strided(self.kernel) if isinstance(self.grid, VoxelGrid) else self.grid

    @cached_property
    def pairs(self) -> list[oracle.Pair]:
        """Rows (j, i) of every slot."""
        return oracle.triplets(self.grid, self.target, self.kernel)

    @property
    def triplets(self) -> int:
        """Number of triplets T."""
        return sum(len(j) for j, _ in self.pairs)

    @property
    def longest(self) -> int:
        """Triplets of the slot that has most: terms of its weights' gradient."""
        return max(len(j) for j, _ in self.pairs)

    def row(
        self, what: str, engine: str, figure: str, params: Params | None = None, **columns: Any
    ) -> Row:
        """A row of something measured here, without times."""
        return Row(
            what,
            self.workload,
            engine,
            n=self.grid.rows,
            triplets=self.triplets,
            k=self.kernel.size[0],
            stride=self.kernel.stride[0],
            figure=figure,
            params=dict(params) if params else None,
            **columns,
        )


def bare(sites: G) -> G:
    """Return the same sites without the levels and maps that are cached on them."""
    return copy.copy(sites)
