"""The quickest builder of every device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps.base import MapBuilder
from pcnn.maps.device_layouts import has_kernels
from pcnn.maps.sorted_search import SortedSearch
from pcnn.maps.windowed import Windowed


@dataclass(frozen=True)
class Automatic:
    """Windowed search where there are device kernels, sorted search in torch elsewhere."""

    name: str = "automatic"

    def on(self, device: torch.device) -> MapBuilder:
        """The builder for tensors of a device."""
        return Windowed() if has_kernels(device) else SortedSearch()

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by the device's builder; see `MapBuilder.build`."""
        return self.on(source.device).build(source, target, kernel)
