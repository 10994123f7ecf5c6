"""Windowed search, and the builder of ``engine=auto``, which takes it where there are kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.slot_tiles import WHOLE_SLOTS
from pcnn.maps.base import MapBuilder
from pcnn.maps.device_layouts import has_kernels, map_of_table
from pcnn.maps.disjoint import DisjointMap, disjoint_maps
from pcnn.maps.sorted_search import SortedSearch
from pcnn.maps.window_search import Search, SearchShape, Sites, chunks_for, search_windows


@dataclass(frozen=True)
class Windowed:
    """Windowed search on packed keys; every kernel, stride, dilation and batch.

    A kernel that tiles space is not searched for, where the coarse sites know the inputs below
    them (``VoxelGrid.inverse``).
    """

    device_only: ClassVar[bool] = True
    name: str = "windowed"

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by windowed search; see `MapBuilder.build`."""
        sites = Sites(source.keys, source.rows)
        if kernel.is_disjoint and target.inverse is not None and source.is_below(target, kernel):
            spacing, above = source.tensor_stride, target.inverse
            task = DisjointMap(
                sites, None, None, kernel.size, spacing, target.rows, above=above, both=False
            )
            return disjoint_maps([task], source.key_format)[0].kernel_map(source.rows, target.rows)
        most = chunks_for(target.rows)
        shape = SearchShape.of(kernel, source.tensor_stride, source.key_format, most)
        # the density of large kernels decides how they are tiled, and costs nothing here
        counts = None
        if kernel.volume > WHOLE_SLOTS:
            counts = torch.zeros(kernel.volume, dtype=torch.int32, device=source.device)
        search = Search.allocate(sites, Sites(target.keys, target.rows), shape, counts)
        search_windows([search])
        wide = None if counts is None else counts.to(torch.int64)
        return map_of_table(source, target, kernel, search.table, search.masks, wide)


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
