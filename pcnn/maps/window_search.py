"""Search of windows: neighbour tables of one map, or of all maps of a network, in one launch.

Outputs are sorted, so the positions that a group of slots asks for only move forwards. Instead of a
binary search through all keys, 32 outputs share a stretch of source keys in fast memory; only the
first stretch of a block is searched for in all keys (`csrc/windowed_search.cu`).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KeyFormat
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import check_table_size, mask_words
from pcnn.kernels import cuda

MAX_TASKS = 16
WARPS, WINDOW = 9, 64

_TASK = struct.Struct("PPPPPPPqqq3qPqqq3iiiii0q")
_NO_TASK = b"\0" * _TASK.size
_NUMBER = struct.Struct("i0q")

_THREADS = 256

#: Dynamic shared memory a block may ask for on every supported device, in bytes.
SHARED_BUDGET = 96 << 10


@dataclass(frozen=True)
class Sites:
    """Sorted keys, of which the first ``count`` are sites."""

    keys: Tensor  # [rows] int64
    rows: int  # sites there is room for
    count: Tensor | None = None  # [1] int32 on the device; None means every row
    fixed: bool = False  # results keep a row for every row there is room for

    @property
    def pointers(self) -> tuple[int, int]:
        """Addresses of keys and count, 0 where there is none."""
        return self.keys.data_ptr(), 0 if self.count is None else self.count.data_ptr()


@dataclass(frozen=True)
class SearchShape:
    """The part of a search that does not depend on its sites; made once for a network."""

    volume: int  # number of kernel slots K
    words: int  # words of a slot mask
    chunks: int  # groups of 32 outputs that a block takes
    shared_bytes: int  # shared memory of a block
    deltas: tuple[int, int, int, int]  # key of slot 0 minus key of the output
    sizes: tuple[int, int, int, int, int, int]  # kernel size

    @property
    def groups(self) -> int:
        """Groups of slots that differ in z only."""
        return self.sizes[0] * self.sizes[1]

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of(
        cls, kernel: Kernel, spacing: Triple, key_format: KeyFormat, most: int = 4
    ) -> SearchShape:
        """Shape of the search for a kernel."""
        volume, (size_x, size_y, size_z) = kernel.volume, kernel.size
        groups, words = size_x * size_y, mask_words(volume)
        fixed = 8 * WARPS * WINDOW + 4 * volume
        # several chunks share a group's first window, as long as 5 blocks fit a multiprocessor
        chunks = max(1, min(most, (34 << 10) // (128 * volume)))
        row = 32 * chunks * 4
        batch = min(groups, (SHARED_BUDGET - fixed - row * words) // (row * size_z))
        if batch < 1:
            raise ValueError(f"windowed search: a kernel of size {kernel.size} is too large")
        shared = fixed + row * (words + batch * size_z)
        deltas = kernel.key_steps(spacing, key_format)
        return cls(volume, words, chunks, shared, deltas, (*kernel.size, words, chunks, batch))


def chunks_for(rows: int) -> int:
    """Chunks a block should take of so many outputs, as measured on an H200.

    Many outputs are worth larger blocks, which look for fewer first windows. Where blocks of 4
    chunks would be between one and three times what the device holds, its last round would leave
    most of it idle: then smaller ones.
    """
    if rows > 800_000:
        return 8
    return 2 if 110_000 < rows < 300_000 else 4


def first_rows(n: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The first ``n`` rows of tensors of one length."""
    return tensors if tensors[0].shape[0] == n else tuple(tensor[:n] for tensor in tensors)


@dataclass(frozen=True)
class Search:
    """One map to be searched, and where its results go."""

    source: Sites  # input sites
    target: Sites  # output sites
    shape: SearchShape  # the relation
    table: Tensor  # [N_out, K] int32 for the input row of every slot, -1 where it is empty
    masks: Tensor  # [N_out, words] int32 for the slot masks
    counts: Tensor | None = None  # [K] int32, zeroed, for the triplets of every slot

    @classmethod
    def allocate(
        cls, source: Sites, target: Sites, shape: SearchShape, counts: Tensor | None = None
    ) -> Search:
        """A search with fresh memory for its results."""
        check_table_size(target.rows, shape.volume)
        if source.rows >= 1 << 31:
            raise ValueError(f"a row is a 32-bit number, but there are {source.rows} keys")
        device = target.keys.device
        table = torch.empty(target.rows, shape.volume, dtype=torch.int32, device=device)
        masks = torch.empty(target.rows, shape.words, dtype=torch.int32, device=device)
        return cls(source, target, shape, table, masks, counts)


def search_windows(searches: Sequence[Search]) -> None:
    """Fill the tables and masks of many maps of one device, `MAX_TASKS` in a launch."""
    for start in range(0, len(searches), MAX_TASKS):
        _launch(searches[start : start + MAX_TASKS])


def _launch(searches: Sequence[Search]) -> None:
    device = searches[0].table.device
    blocks = [-(-search.target.rows // (32 * search.shape.chunks)) for search in searches]
    probes = [n * search.shape.groups for n, search in zip(blocks, searches, strict=True)]
    starts = torch.empty(sum(probes), dtype=torch.int32, device=device)
    tasks, shared = [], 0
    place, first_block, first_probe = starts.data_ptr(), 0, 0
    for search, own, probed in zip(searches, blocks, probes, strict=True):
        shape, rows = search.shape, search.target.rows
        counts = 0 if search.counts is None else search.counts.data_ptr()
        outputs = search.table.data_ptr(), search.masks.data_ptr(), counts
        pointers = *search.source.pointers, *search.target.pointers, *outputs
        plan = place, first_block, own, first_probe
        tasks.append(
            _TASK.pack(
                *(*pointers, search.source.rows, rows, *shape.deltas, *plan, *shape.sizes),
                int(search.target.fixed),
            )
        )
        place += 4 * probed
        first_block += own
        first_probe += -(-probed // _THREADS)
        shared = max(shared, shape.shared_bytes)
    tasks += [_NO_TASK] * (MAX_TASKS - len(tasks)) + [_NUMBER.pack(len(searches))]
    arguments = b"".join(tasks)
    module = cuda.module("windowed_search.cu", device)
    module.launch("first_windows", first_probe, arguments, device)
    module.launch("windowed_search", first_block, arguments, device, shared_bytes=shared)
