"""One map as `pcnn.plan` builds it: output sites, map and layouts together."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import torch

from pcnn.bench.verify import CheckFailed
from pcnn.dataflows import Automatic
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.nn import Conv3d, Sequential
from pcnn.ops.engine import ENGINES
from pcnn.ops.plan import Planner

#: What ``auto`` computes with on a GPU, wherever the layouts are made.
AUTO = Automatic().on(torch.device("cuda"))


@dataclass(frozen=True)
class Planned:
    """The plan of a network with one kernel map, in the place of a map builder."""

    name: str = "plan"

    def make(self, grid: VoxelGrid, kernel: Kernel, product: str) -> KernelMap:
        """Plan the output sites, the map, and its layouts.

        Args:
            grid: input sites with empty caches.
            kernel: the relation; its padding is the usual one.
            product: ``ready`` and ``train`` are what the layer's own dataflow asks for, forward and
                with backward; any other name is the one layout that is built.
        """
        own = product in ("ready", "train")
        _planner(kernel, None if own else (product,))(grid, backward=product == "train")
        return grid.map_to(grid.strided(kernel), kernel, _Unplanned())

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map to the sites that the plan finds itself."""
        return self.make(source, kernel, "table")


@functools.lru_cache(maxsize=64)
def _planner(kernel: Kernel, layouts: tuple[str, ...] | None) -> Planner:
    """Planner of a convolution within a network: its dry run is no part of a plan.

    A pointwise layer stands before it, which has no map: of the layer that reads the input itself
    a plan leaves out what the input's gradient would read.
    """
    engine = replace(ENGINES["auto"], dataflow=AUTO)
    before = Conv3d(1, 1, 1, engine=engine)
    return Planner(
        Sequential(before, Conv3d(1, 1, kernel.size, kernel.stride, engine=engine)), layouts
    )


class _Unplanned:
    """A builder that is not to be asked."""

    def build(self, source: Any, target: Any, kernel: Kernel) -> KernelMap:
        """Refuse."""
        raise CheckFailed(f"the plan left out the map of {kernel}")
