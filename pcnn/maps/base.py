"""What builders of device kernels share: layouts, and the maps that a search finds many of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.base import Builder
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import derived, mask_words
from pcnn.geometry.packing import SHIFTS
from pcnn.geometry.tile_steps import STEPS, WHOLE_SLOTS, Layout, check_table_size
from pcnn.kernels import cuda
from pcnn.maps.pairs import (
    by_row_layout,
    pairs_layout,
    places_layout,
    rows_from_pairs,
    table_layout,
)
from pcnn.maps.tile_steps import row_masks, step_views


def has_kernels(device: torch.device) -> bool:
    """True if device kernels serve tensors there."""
    return device.type in cuda.LOADERS


def _masks(kernel_map: KernelMap) -> Layout:
    return (row_masks(kernel_map.layout("table")[0]),)


def _counts(kernel_map: KernelMap) -> Layout:
    if kernel_map.has("places"):
        return (kernel_map.layout("places")[1].diff(),)
    return derived(kernel_map, "counts")


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
        "counts": _counts,
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


@dataclass(frozen=True)
class Sites:
    """Sorted keys, of which the first ``count`` are sites."""

    keys: Tensor  # [rows] int64
    rows: int  # sites there is room for
    count: Tensor | None = None  # [1] int32 on the device; None means every row
    fixed: bool = False  # results keep a row for every row there is room for


@dataclass(frozen=True)
class Relation:
    """The part of a search that does not depend on its sites."""

    kernel: Kernel
    spacing: Triple  # tensor stride of the inputs
    shifts: Triple = SHIFTS  # of x, y and z in a key


@dataclass(frozen=True)
class Task:
    """One map to be searched, and where its results go."""

    source: Sites  # input sites
    target: Sites  # output sites
    relation: Relation
    table: Tensor  # [N_out, K] int32 for the input row of every slot, -1 where it is empty
    masks: Tensor | None = None  # [N_out, words] int32 for the slot masks, of searches with such
    counts: Tensor | None = None  # [K] int32, zeroed, for the triplets of every slot

    @classmethod
    def of(
        cls,
        search: TableSearch,
        source: Sites,
        target: Sites,
        relation: Relation,
        counts: Tensor | None = None,
    ) -> Task:
        """A search with fresh memory for its results."""
        rows, volume, device = target.rows, relation.kernel.volume, target.keys.device
        check_table_size(rows, volume)
        if source.rows >= 1 << 31:
            raise ValueError(f"a row is a 32-bit number, but there are {source.rows} keys")
        table = torch.empty(rows, volume, dtype=torch.int32, device=device)
        masks = None
        if search.masks:
            masks = torch.empty(rows, mask_words(volume), dtype=torch.int32, device=device)
        return cls(source, target, relation, table, masks, counts)


class TableSearch(Builder, Protocol):
    """A builder that also finds maps of sites that no host has counted, many at once."""

    @property
    def together(self) -> bool:
        """False: settings ask the host for something about the sites."""

    @property
    def masks(self) -> bool:
        """True if it writes the slot masks of the rows too."""

    def search(self, tasks: Sequence[Task]) -> None:
        """Fill the tables and counts of maps of one device, and their masks; nothing waits."""


def build_table(
    search: TableSearch, source: VoxelGrid, target: VoxelGrid, kernel: Kernel
) -> KernelMap:
    """The map of one kernel by a search of many; see `Builder.build`."""
    # the density of large kernels decides how they are tiled, and costs nothing here
    counts = None
    if kernel.volume > WHOLE_SLOTS:
        counts = torch.zeros(kernel.volume, dtype=torch.int32, device=source.device)
    sites = Sites(source.keys, source.rows), Sites(target.keys, target.rows)
    relation = Relation(kernel, source.tensor_stride)
    task = Task.of(search, *sites, relation, counts)
    search.search([task])
    wide = None if counts is None else counts.to(torch.int64)
    return map_of_table(source, target, kernel, task.table, task.masks, wide)
