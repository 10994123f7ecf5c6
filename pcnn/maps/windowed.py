"""Search of windows: neighbour tables of one map, or of all maps of a network, in one launch.

Outputs are sorted, so the positions that a group of slots asks for only move forwards. Instead of a
binary search through all keys, 32 outputs share a stretch of source keys in fast memory; only the
first stretch of a block is searched for in all keys (`csrc/windowed_search.cu`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.layouts import mask_words
from pcnn.kernels import cuda
from pcnn.kernels.structs import address, packer
from pcnn.maps.base import Sites, Task, build_table, has_kernels, map_of_table
from pcnn.maps.disjoint import DisjointMap, lone_table
from pcnn.maps.host_search import SortedSearch

SOURCE = "windowed_search.cu"
MAX_TASKS = 16
WARPS, WINDOW = 9, 64

_THREADS = 256

#: Dynamic shared memory a block may ask for on every supported device, in bytes.
SHARED_BUDGET = 96 << 10


@dataclass(frozen=True)
class Windowed:
    """Windowed search on packed keys; every kernel, stride, dilation and batch.

    A kernel that tiles space is not searched for, where the coarse sites know the inputs below
    them (``VoxelGrid.inverse``). Where there are no device kernels, `SortedSearch` serves.
    """

    together: ClassVar[bool] = True
    masks: ClassVar[bool] = True
    name: str = "windowed"

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by windowed search; see `Builder.build`."""
        if not has_kernels(source.device):
            return SortedSearch().build(source, target, kernel)
        if kernel.is_disjoint and target.inverse is not None and source.level(kernel) is target:
            sites = Sites(source.keys, source.rows)
            given = sites, None, None, kernel.size, source.tensor_stride, target.rows
            table = lone_table(DisjointMap(*given, above=target.inverse))
            return map_of_table(source, target, kernel, table)
        return build_table(self, source, target, kernel)

    def search(self, tasks: Sequence[Task]) -> None:
        """See `TableSearch.search`."""
        most = _most_chunks(tasks[0].target.rows) if len(tasks) == 1 else 4
        for start in range(0, len(tasks), MAX_TASKS):
            _launch(tasks[start : start + MAX_TASKS], most)


@dataclass(frozen=True)
class _Shape:
    """How the search for a kernel is cut."""

    groups: int  # of slots that differ in z only
    words: int  # words of a slot mask
    chunks: int  # groups of 32 outputs that a block takes
    batch: int  # groups of slots that it holds at once
    shared_bytes: int  # shared memory of a block


@functools.lru_cache(maxsize=256)
def shape_of(kernel: Kernel, most: int = 4) -> _Shape:
    """How the search for a kernel is cut, with at most so many chunks a block."""
    volume, (size_x, size_y, size_z) = kernel.volume, kernel.size
    groups, words = size_x * size_y, mask_words(volume)
    fixed = 8 * WARPS * WINDOW + 4 * volume
    # several chunks share a group's first window, as long as 5 blocks fit a multiprocessor
    chunks = max(1, min(most, (34 << 10) // (128 * volume)))
    row = 32 * chunks * 4
    batch = min(groups, (SHARED_BUDGET - fixed - row * words) // (row * size_z))
    if batch < 1:
        raise ValueError(f"windowed search: a kernel of size {kernel.size} is too large")
    return _Shape(groups, words, chunks, batch, fixed + row * (words + batch * size_z))


def _most_chunks(rows: int) -> int:
    """Chunks a block should take of so many outputs, as measured on an H200."""
    if rows > 800_000:
        return 8
    return 2 if 110_000 < rows < 300_000 else 4


def _launch(searches: Sequence[Task], most: int) -> None:
    device = searches[0].table.device
    shapes = [shape_of(search.relation.kernel, most) for search in searches]
    each = list(zip(searches, shapes, strict=True))
    blocks = [-(-search.target.rows // (32 * shape.chunks)) for search, shape in each]
    probes = [n * shape.groups for n, shape in zip(blocks, shapes, strict=True)]
    starts = torch.empty(sum(probes), dtype=torch.int32, device=device)
    pack, tasks, start = packer(SOURCE, "SearchTask"), [], starts.data_ptr()
    first_block = first_probe = 0
    for (search, shape), own, probe in zip(each, blocks, probes, strict=True):
        relation, source, target = search.relation, search.source, search.target
        tensors = source.keys, source.count, target.keys, target.count
        task = pack(
            *map(address, (*tensors, search.table, search.masks, search.counts)),
            *(source.rows, target.rows),
            *relation.kernel.key_steps(relation.spacing, relation.shifts),
            *(start, first_block, own, first_probe, *relation.kernel.size),
            *(shape.words, shape.chunks, shape.batch, int(target.fixed)),
        )
        tasks.append(task)
        start += 4 * probe
        first_block += own
        first_probe += -(-probe // _THREADS)
    shared = max(shape.shared_bytes for shape in shapes)
    module = cuda.module(SOURCE, device)
    arguments = packer(SOURCE, "SearchArguments")(b"".join(tasks), len(tasks))
    module.run("first_windows", first_probe, arguments)
    module.run("windowed_search", first_block, arguments, shared)
