"""Maps in memory of fixed size for products of grouped slots: every slot has room of its own.

The groups of a padded buffer are made on the host, from the number of triplets of every slot. In
memory of fixed size they are made from the room of every slot instead: pairs of slot k begin where
the room of the slots before ends, so a buffer for the room serves every map that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.base import holding_sites
from pcnn.geometry.kernel_map import EdgeSet, outside_inference_mode
from pcnn.geometry.layouts import Layout
from pcnn.maps.base import MapBuilder
from pcnn.maps.pairs import (
    MOST_SLOTS,
    Places,
    empty_pairs,
    places_in_table,
    rows_of_table,
    transposed_table,
)

#: Layouts that such a map has.
BOUNDED = ("pairs", "identity_slot", "by_in", "by_out")


class SlotRoom(NamedTuple):
    """Room for the triplets of every slot of a map."""

    offsets: Tensor  # [K + 1] int64 on the host: room of slot k is offsets[k]..offsets[k + 1]
    first: Tensor  # the same on the device
    most: Tensor  # [K] int64 on the device


class BoundedLists:
    """Builds maps for one batch after another; what a CUDA graph reads of the host is made once."""

    def __init__(self) -> None:
        self._rooms: dict[tuple[tuple[int, ...], torch.device], SlotRoom] = {}

    def map(
        self,
        builder: MapBuilder,
        source: VoxelGrid,
        target: VoxelGrid,
        kernel: Kernel,
        bounds: Sequence[int],  # [K], triplets of every slot that there is room for
    ) -> tuple[KernelMap, Tensor]:
        """The map of sites in memory of fixed size, with the layouts `BOUNDED`; nothing waits."""
        symmetric = kernel.is_symmetric and source is target
        central = kernel.volume // 2 if symmetric and kernel.volume % 2 else -1
        least = min(source.rows, target.rows)
        own = [least if k == central else min(least, most) for k, most in enumerate(bounds)]
        room = self._room(tuple(own), source.device)
        (table,) = builder.build(source, target, kernel).layout("table")
        assert target.count is not None
        table.masked_fill_(~holding_sites(target.rows, target.count)[:, None], -1)
        found = (table >= 0).sum(0)
        table.masked_fill_(~(found <= room.most).all(), -1)
        total = int(room.offsets[-1])
        by_row, by_input = _by_row(table, room, total, symmetric)
        if by_input is None:
            by_input, _ = _by_row(transposed_table(table, source.rows), room, total, False)
        sides, rows = (source.count, target.count), (source.rows, target.rows)
        edges = EdgeSet(rows, kernel.volume, (True, True), symmetric, counts=sides)
        for flipped, order in ((False, (by_input, by_row)), (True, (by_row, by_input))):
            none = empty_pairs(0, table.device)  # products by row do not read them
            edges.layouts["pairs", flipped] = *none, room.offsets
            edges.layouts["identity_slot", flipped] = (torch.tensor([central]),)
            edges.layouts["by_in", flipped], edges.layouts["by_out", flipped] = order
        return KernelMap(edges), found.to(torch.int32)

    def _room(self, bounds: tuple[int, ...], device: torch.device) -> SlotRoom:
        key = bounds, device
        if key not in self._rooms:
            with outside_inference_mode():
                ends, most = torch.tensor([0, *accumulate(bounds)]), torch.tensor(bounds)
                there = (one.to(device, non_blocking=True) for one in (ends, most))
                self._rooms[key] = SlotRoom(ends, *there)
        return self._rooms[key]


def serves(kernel: Kernel) -> bool:
    """True for a kernel of so few slots that rows of its table are listed without a sort."""
    return kernel.volume <= MOST_SLOTS


def with_own_keys(grid: VoxelGrid) -> VoxelGrid:
    """A grid of a room for a search that knows no counts: its spare rows have keys of their own."""
    own = grid.key_format
    assert grid.count is not None
    spare = (own.max_batch << own.batch_shift) + (1 << (own.batch_shift - 1))
    rows = torch.arange(grid.rows, device=grid.device)
    keys = torch.where(rows < grid.count, grid.keys, rows + spare)
    return replace(grid, keys=keys, check=False)


def _by_row(
    table: Tensor, room: SlotRoom, total: int, symmetric: bool
) -> tuple[Layout, Layout | None]:
    starts, _ = places_in_table(table)
    return rows_of_table(table, Places(starts, room.first), total, symmetric)
