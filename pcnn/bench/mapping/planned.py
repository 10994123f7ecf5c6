"""One map as `pcnn.plan` builds it: output sites, map and layouts together."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pcnn.bench.verify import CheckFailed
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.nn import Conv3d
from pcnn.ops.plan import Planner


@dataclass(frozen=True)
class Planned:
    """The plan of a network of one convolution, in the place of a map builder."""

    name: str = "plan"

    def make(self, grid: VoxelGrid, kernel: Kernel, layouts: tuple[str, ...]) -> KernelMap:
        """Plan the output sites, the map, and its layouts.

        Args:
            grid: input sites with empty caches.
            kernel: the relation; its padding is the usual one.
            layouts: what is delivered; of the transpose too, if there are ``pairs`` among several.
        """
        planner = _planner(kernel, layouts)
        planner(grid, backward="pairs" in layouts and len(layouts) > 1)
        return grid.map_to(grid.strided(kernel), kernel, _unplanned)

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map to the sites that the plan finds itself."""
        return self.make(source, kernel, ("table",))


@functools.lru_cache(maxsize=64)
def _planner(kernel: Kernel, layouts: tuple[str, ...]) -> Planner:
    """Planner of a convolution: its dry run is no part of a plan."""
    return Planner(Conv3d(1, 1, kernel.size, kernel.stride), layouts)


def _unplanned(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
    raise CheckFailed(f"the plan left out the map of {kernel}")
