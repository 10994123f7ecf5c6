"""Layouts that device kernels derive, instead of the torch functions of `geometry.layouts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.layouts import derived
from pcnn.geometry.steps import STEPS, Layout
from pcnn.kernels import cuda
from pcnn.maps.pairs import (
    by_row_layout,
    pairs_layout,
    places_layout,
    rows_from_pairs,
    table_layout,
)
from pcnn.maps.steps import row_masks, step_views


def has_kernels(device: torch.device) -> bool:
    """True if device kernels serve tensors there."""
    return device.type in cuda.LOADERS


def _masks(kernel_map: KernelMap) -> Layout:
    return (row_masks(kernel_map.layout("table")[0]),)


def _steps(kernel_map: KernelMap, name: str) -> Layout:
    step_views([(kernel_map, name)])
    key = name, kernel_map.flipped
    if key in kernel_map.edges.layouts:
        return kernel_map.edges.layouts[key]
    return derived(kernel_map, name)  # from another layout, without a sort


#: Layouts that have kernels, by name: what builders on such devices give their maps as ``derive``.
#: `pcnn.geometry.layouts.LAYOUTS` says the rest of each; that room knows of no kernels.
DEVICE_LAYOUTS: Mapping[str, Callable[[KernelMap], Layout]] = MappingProxyType(
    {
        "pairs": pairs_layout,
        "table": table_layout,
        "masks": _masks,
        "rows_csr": rows_from_pairs,
        "places": places_layout,
        "by_out": by_row_layout,
        **{name: partial(_steps, name=name) for name in STEPS},
    }
)


def map_of_table(
    source: VoxelGrid,
    target: VoxelGrid,
    kernel: Kernel,
    table: Tensor,  # [N_out, K] int32, as the following in KernelMap.from_table
    masks: Tensor | None = None,  # [N_out, ceil(K / 31)] int32
    counts: Tensor | None = None,  # [K] int64
) -> KernelMap:
    """Kernel map from ``source`` to ``target`` of a table that device kernels wrote."""
    symmetric = kernel.is_symmetric and source is target
    row_counts = source.count, target.count
    return KernelMap.from_table(
        table, source.rows, masks, counts, symmetric, DEVICE_LAYOUTS, row_counts
    )
