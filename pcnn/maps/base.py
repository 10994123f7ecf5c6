"""The protocol of map builders: a function of two geometries and a kernel."""

from __future__ import annotations

from typing import Protocol

from pcnn.geometry import Kernel, KernelMap, VoxelGrid


class MapBuilder(Protocol):
    """Finds all triplets of a convolution.

    Builders differ in speed only: the set of triplets, and their order (by slot, then output row),
    is the same for all. One that is made of device kernels alone has ``device_only = True``.
    """

    def __hash__(self) -> int:
        """Equal settings have equal hashes; a frozen dataclass has this by itself."""

    @property
    def name(self) -> str:
        """Name in configurations and reports."""

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map from input sites ``source`` to output sites ``target``."""
