"""Maps of kernels that tile space (size = stride), from the parents that the coarse sites know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, PointSet
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import Layout, mask_words
from pcnn.kernels import cuda
from pcnn.maps.base import DEVICE_LAYOUTS, Sites, has_kernels
from pcnn.maps.host_search import sort_by_slot
from pcnn.maps.pairs import list_table, places_in_table, rows_from_pairs
from pcnn.maps.point_memory import PendingMap

MAX_TASKS = 16

_THREADS = 256


@dataclass(frozen=True)
class DisjointMap:
    """One map of a kernel that tiles space, and what is known of its sites."""

    source: Sites  # input sites
    first: Tensor | None  # [N_in] int32, a finest row inside every input
    parent: Tensor | None  # [finest rows] int32, output of every finest row; None with above
    size: Triple  # of the kernel, which is its stride
    spacing: Triple  # tensor stride of the inputs
    n_out: int  # rows there is room for on the output side
    counts: Tensor | None = None  # [K] int32, zeroed, for the triplets of every slot
    above: Tensor | None = None  # [N_in] int64, output of every input, where that is known directly

    @property
    def volume(self) -> int:
        """Number of kernel slots K."""
        return self.size[0] * self.size[1] * self.size[2]


@dataclass(frozen=True)
class DisjointTables:
    """Both directions of a map."""

    table: Tensor  # [N_out, K] int32, input of every slot, -1 where it is empty
    masks: Tensor  # [N_out, words] int32, its slot masks
    table_t: Tensor  # [N_in, K] int32 of the transposed map
    masks_t: Tensor  # [N_in, words] int32, its slot masks
    inverse: Tensor  # [N_in] int64, output of every input

    def kernel_map(
        self,
        n_in: int,
        n_out: int,
        row_counts: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> KernelMap:
        """The map of the first ``n_in`` inputs and ``n_out`` outputs."""
        table, masks = self.table[:n_out], self.masks[:n_out]
        built = KernelMap.from_table(
            table, n_in, masks, derive=DEVICE_LAYOUTS, row_counts=row_counts
        )
        built.edges.layouts["table", True] = (self.table_t[:n_in],)
        built.edges.layouts["masks", True] = (self.masks_t[:n_in],)
        return built


def lone_table(entry: DisjointMap) -> Tensor:
    """The neighbour table of one map."""
    shape, device = (entry.n_out, entry.volume), entry.source.keys.device
    table = torch.full(shape, -1, dtype=torch.int32, device=device)
    _launch([entry], [(table, *[None] * 5)])
    return table


def disjoint_maps(maps: Sequence[DisjointMap]) -> list[DisjointTables]:
    """Build maps of one device, `MAX_TASKS` in a launch."""
    tables: list[DisjointTables] = []
    for start in range(0, len(maps), MAX_TASKS):
        part = maps[start : start + MAX_TASKS]
        own = list(_empty_tables(part))
        _launch(part, [(t.table, t.masks, t.table_t, t.masks_t, None, t.inverse) for t in own])
        tables += own
    return tables


def _empty_tables(maps: Sequence[DisjointMap]) -> Iterator[DisjointTables]:
    kind: dict[str, Any] = {"dtype": torch.int32, "device": maps[0].source.keys.device}
    # outputs are written by scatter: all tables start empty, in one launch each
    cells = [m.n_out * m.volume for m in maps]
    marks = [m.n_out * mask_words(m.volume) for m in maps]
    empty = torch.full((sum(cells),), -1, **kind).split_with_sizes(cells)
    unset = torch.zeros(sum(marks), **kind).split_with_sizes(marks)
    for entry, table, masks in zip(maps, empty, unset, strict=True):
        volume, rows, words = entry.volume, entry.source.rows, mask_words(entry.volume)
        sides = torch.empty(rows, volume, **kind), torch.empty(rows, words, **kind)
        above = torch.empty(rows, dtype=torch.int64, device=kind["device"])
        yield DisjointTables(table.view(-1, volume), masks.view(-1, words), *sides, above)


def _launch(maps: Sequence[DisjointMap], written: Sequence[tuple[Tensor | None, ...]]) -> None:
    tasks, blocks = [], 0
    for entry, results in zip(maps, written, strict=True):
        source = entry.source
        task = (
            *(source.keys, source.count, entry.first, entry.above, entry.parent),
            *(*results, entry.counts, source.rows, blocks, entry.size, entry.spacing),
            *(mask_words(entry.volume), int(source.fixed)),
        )
        tasks.append(task)
        blocks += -(-source.rows // _THREADS)
    module = cuda.module("disjoint.cu", maps[0].source.keys.device)
    module.launch("disjoint_map", blocks, tasks, len(tasks))


def listed_parents(source: PointSet, target: PointSet, kernel: Kernel) -> KernelMap:
    """One output and one slot for every point: ``fine cell - stride * coarse cell``, in torch."""
    parent = _parent(source, target, kernel)  # [N_in]
    step = torch.tensor(kernel.stride, device=source.device)
    place = source.cells[:, 1:] - target.cells[parent, 1:] * step  # [N_in, 3]
    _, size_y, size_z = kernel.size
    slot = (place[:, 0] * size_y + place[:, 1]) * size_z + place[:, 2]
    # with a slot given, rows and their parents ascend together
    rows = torch.arange(source.rows, device=source.device)
    return KernelMap.from_pairs(
        *sort_by_slot(slot, rows, parent, kernel.volume),
        source.rows,
        target.rows,
        one_per_slot=source.one_per_cell,
    )


def counted_parents(source: PointSet, target: PointSet, kernel: Kernel) -> PendingMap | None:
    """The same on a device, where the triplets are counted; nothing waits."""
    parent = _parent(source, target, kernel)
    if not has_kernels(source.device) or not source.rows:
        return None
    n, volume, device = source.rows, kernel.volume, source.device
    table = torch.empty(n, volume, dtype=torch.int32, device=device)  # of the transposed map
    slots = torch.empty(n, dtype=torch.int32, device=device)
    given = Sites(source.keys, n), None, None, kernel.size, (1, 1, 1), target.rows
    _launch([DisjointMap(*given, above=parent)], [(None, None, table, None, slots, None)])
    places = places_in_table(table)

    def rows(kernel_map: KernelMap) -> Layout:
        if not kernel_map.flipped:
            return rows_from_pairs(kernel_map)
        return parent.to(torch.int32), slots, torch.arange(n + 1, device=device)

    def fill(offsets: Tensor) -> KernelMap:
        # rows and their parents ascend together, so a slot is in order from either side
        out_index, in_index = list_table(table, places, n)
        sizes, unique = (n, target.rows), (source.one_per_cell, True)
        derive = {**DEVICE_LAYOUTS, "rows_csr": rows}
        built = KernelMap.from_pairs(in_index, out_index, offsets, *sizes, *unique, derive=derive)
        built.edges.layouts["counts", False] = (places.first.diff(),)
        return built

    return PendingMap(places.first, fill, (n, target.rows))


def _parent(source: PointSet, target: PointSet, kernel: Kernel) -> Tensor:
    """``[N_in]`` int64 output row of every input."""
    above = source.rows_above(target)
    steps = zip(source.tensor_stride, kernel.stride, strict=True)
    if above is None or target.tensor_stride != tuple(t * s for t, s in steps):
        raise ValueError(
            "the output points were not made from the input points by the kernel's stride"
        )
    return above
