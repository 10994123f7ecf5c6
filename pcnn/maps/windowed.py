"""Search of windows: neighbour tables of one map, or of all maps of a network, in one launch.

Outputs are sorted, so the positions that a group of slots asks for only move forwards. Instead of a
binary search through all keys, 32 outputs share a stretch of source keys in fast memory; only the
first stretch of a group is searched for, by 32 lanes at once (`csrc/windowed_search.cu`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, KeyLayout, VoxelGrid
from pcnn.geometry.kernel import Triple
from pcnn.geometry.layouts import MASK_BITS, check_table_size
from pcnn.kernels import cuda
from pcnn.maps.native import NATIVE

MAX_TASKS = 16
WARPS, WINDOW = 8, 256

_TASK = struct.Struct("PPPPPPPqqq3qq3iiii0q")
_NO_TASK = b"\0" * _TASK.size

#: Dynamic shared memory a block may ask for on every supported device, in bytes.
SHARED_BUDGET = 96 << 10


@dataclass(frozen=True)
class Sites:
    """Sorted keys, of which the first ``count`` are sites.

    Args:
        keys: ``[rows]`` int64.
        count: ``[1]`` int32 on the device; ``None`` means every row.
    """

    keys: Tensor
    count: Tensor | None = None

    @property
    def rows(self) -> int:
        """Sites there is room for."""
        return self.keys.shape[0]

    @property
    def pointers(self) -> tuple[int, int]:
        """Addresses of keys and count, 0 where there is none."""
        return self.keys.data_ptr(), 0 if self.count is None else self.count.data_ptr()


@dataclass(frozen=True)
class Search:
    """One map to be searched, and where its results go.

    Args:
        source: input sites.
        target: output sites.
        kernel: the relation.
        spacing: tensor stride of the inputs.
        table: ``[N_out, K]`` int32 for the input row of every slot, -1 where it is empty.
        masks: ``[N_out, ceil(K / 31)]`` int32 for the slot masks.
        counts: ``[K]`` int32, zeroed, for the triplets of every slot; ``None`` to leave them.
    """

    source: Sites
    target: Sites
    kernel: Kernel
    spacing: Triple
    table: Tensor
    masks: Tensor
    counts: Tensor | None = None

    @classmethod
    def allocate(
        cls, source: Sites, target: Sites, kernel: Kernel, spacing: Triple, counts: Tensor | None
    ) -> Search:
        """A search with fresh memory for its results.

        Raises:
            ValueError: the table exceeds the memory budget.
        """
        check_table_size(target.rows, kernel.volume)
        table = torch.empty(
            target.rows, kernel.volume, dtype=torch.int32, device=target.keys.device
        )
        masks = torch.empty(
            target.rows, words_of(kernel.volume), dtype=torch.int32, device=target.keys.device
        )
        return cls(source, target, kernel, spacing, table, masks, counts)


def words_of(volume: int) -> int:
    """Words of a slot mask."""
    return -(-volume // MASK_BITS)


def search_windows(searches: Sequence[Search], layout: KeyLayout) -> None:
    """Fill the tables and masks of many maps, `MAX_TASKS` in a launch.

    Args:
        searches: maps of one device.
        layout: bit widths of all keys.

    Raises:
        ValueError: keys of more than 2^31 rows.
    """
    for start in range(0, len(searches), MAX_TASKS):
        _launch(searches[start : start + MAX_TASKS], layout)


def _launch(searches: Sequence[Search], layout: KeyLayout) -> None:
    tasks, blocks, shared = [], 0, 0
    for search in searches:
        if search.source.rows >= 1 << 31:
            raise ValueError(f"a row is a 32-bit number, but there are {search.source.rows} keys")
        kernel, volume = search.kernel, search.kernel.volume
        words = search.masks.shape[1]
        chunks, batch, size = _shape(kernel, words)
        shared = max(shared, size)
        padding = [-p * s for p, s in zip(kernel.padding, search.spacing, strict=True)]
        steps = [
            (d * s) << shift
            for d, s, shift in zip(kernel.dilation, search.spacing, layout.shifts, strict=True)
        ]
        tasks.append(
            _TASK.pack(
                *search.source.pointers,
                *search.target.pointers,
                search.table.data_ptr(),
                search.masks.data_ptr(),
                0 if search.counts is None else search.counts.data_ptr(),
                search.source.rows,
                search.target.rows,
                layout.delta(padding),
                *steps,
                blocks,
                *kernel.size,
                words,
                chunks,
                batch,
            )
        )
        blocks += -(-search.target.rows // (32 * chunks))
        assert search.table.shape[1] == volume
    arguments = b"".join([*tasks, *[_NO_TASK] * (MAX_TASKS - len(tasks))])
    arguments += struct.pack("i0q", len(tasks))
    device = searches[0].table.device
    module = cuda.module("windowed_search.cu", device)
    module.launch("windowed_search", blocks, arguments, device, shared_bytes=shared)


def _shape(kernel: Kernel, words: int) -> tuple[int, int, int]:
    """Chunks of 32 outputs a block takes, groups it holds at once, and its shared memory."""
    size_x, size_y, size_z = kernel.size
    groups = size_x * size_y
    fixed = 8 * WARPS * WINDOW + 4 * kernel.volume
    # several chunks share the search for a group's first window, as long as 6 blocks fit an SM
    chunks = max(1, min(4, (16 << 10) // (128 * kernel.volume)))
    row = 32 * chunks * 4
    batch = min(groups, (SHARED_BUDGET - fixed - row * words) // (row * size_z))
    if batch < 1:
        raise ValueError(f"windowed search: a kernel of size {kernel.size} is too large")
    return chunks, batch, fixed + row * (words + batch * size_z)


@dataclass(frozen=True)
class Windowed:
    """Windowed search on packed keys; every kernel, stride, dilation and batch."""

    name: str = "windowed"

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by windowed search; see `MapBuilder.build`."""
        symmetric = kernel.is_symmetric and source is target
        counts = torch.zeros(kernel.volume, dtype=torch.int32, device=source.device)
        search = Search.allocate(
            Sites(source.keys), Sites(target.keys), kernel, source.tensor_stride, counts
        )
        search_windows([search], source.layout)
        return KernelMap.from_table(
            search.table, source.rows, search.masks, counts, symmetric, NATIVE
        )
