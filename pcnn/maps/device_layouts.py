"""Layouts that device kernels derive, instead of the torch functions of `geometry.layouts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from pcnn.geometry import KernelMap
from pcnn.geometry.block_layouts import Layout
from pcnn.geometry.layouts import derived
from pcnn.kernels import cuda
from pcnn.maps.row_lists import row_lists
from pcnn.maps.table_to_pairs import pairs_layout, rows_from_pairs, table_layout
from pcnn.maps.tiles import row_masks, tile_views


def has_kernels(device: torch.device) -> bool:
    """Whether device kernels serve tensors there."""
    return device.type in cuda.LOADERS


def masks(kernel_map: KernelMap) -> Layout:
    """Slot masks of all rows; see `pcnn.geometry.layouts.masks`."""
    return (row_masks(kernel_map.layout("table")[0]),)


def tiles(kernel_map: KernelMap) -> Layout:
    """Rows and slots of tiles; see `pcnn.geometry.slot_tiles.tiles`."""
    return _tiled(kernel_map, "tiles")


def section_tiles(kernel_map: KernelMap) -> Layout:
    """Tiles of every plane of slots; see `pcnn.geometry.slot_tiles.section_tiles`."""
    return _tiled(kernel_map, "section_tiles")


def fitting_tiles(kernel_map: KernelMap) -> Layout:
    """Tiles as the map's density asks; see `pcnn.geometry.slot_tiles.fitting_tiles`."""
    return _tiled(kernel_map, "fitting_tiles")


def _tiled(kernel_map: KernelMap, name: str) -> Layout:
    tile_views([(kernel_map, name)])
    key = name, kernel_map.flipped
    if key in kernel_map.edges.layouts:
        return kernel_map.edges.layouts[key]
    return derived(kernel_map, name)  # from another layout, without a sort


#: By the name of the layout, for `KernelMap.from_table` and `KernelMap.from_pairs`.
DEVICE_LAYOUTS: Mapping[str, Callable[[KernelMap], Layout]] = MappingProxyType(
    {
        "pairs": pairs_layout,
        "table": table_layout,
        "masks": masks,
        "rows_csr": rows_from_pairs,
        "row_lists": row_lists,
        "tiles": tiles,
        "section_tiles": section_tiles,
        "fitting_tiles": fitting_tiles,
    }
)
