"""Layouts that device kernels derive, instead of the torch functions of `geometry.layouts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import LAYOUTS, Layout
from pcnn.kernels import cuda
from pcnn.maps.table_to_pairs import pairs_layout, table_layout
from pcnn.maps.tiles import row_masks, tiles_of_masks


def has_kernels(device: torch.device) -> bool:
    """Whether device kernels serve tensors there."""
    return device.type in cuda.LOADERS


def masks(kernel_map: KernelMap) -> Layout:
    """Slot masks of all rows; see `pcnn.geometry.layouts.masks`."""
    return (row_masks(kernel_map.layout("table")[0]),)


def tiles(kernel_map: KernelMap) -> Layout:
    """Row order and slot lists; see `pcnn.geometry.layouts.tiles`."""
    other = kernel_map.transpose()
    if kernel_map.symmetric and other.has("tiles"):
        return LAYOUTS["tiles"](kernel_map)  # mirrored, without another sort
    return tiles_of_masks([(kernel_map.layout("masks")[0], kernel_map.volume)])[0]


#: By the name of the layout, for `KernelMap.from_table` and `KernelMap.from_pairs`.
NATIVE: Mapping[str, Callable[[KernelMap], Layout]] = MappingProxyType(
    {"pairs": pairs_layout, "table": table_layout, "masks": masks, "tiles": tiles}
)
