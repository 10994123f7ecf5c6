"""Maps of kernels that tile space (size = stride), from the parents that the coarse sites know.

Every input has one output and one slot, so nothing is searched; both directions of the map are
written in one pass over the inputs (`csrc/disjoint.cu`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import KernelMap, KeyFormat
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import mask_words
from pcnn.kernels import cuda
from pcnn.maps.base import Sites, first_rows
from pcnn.maps.device_layouts import DEVICE_LAYOUTS

MAX_TASKS = 16

_TASK = struct.Struct("11Pqq3i3i3iii0q")
_NO_TASK = b"\0" * _TASK.size
_NUMBER = struct.Struct("i0q")
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
    both: bool = True  # whether the transposed map is wanted too, and the slot masks of both

    @property
    def volume(self) -> int:
        """Number of kernel slots K."""
        return self.size[0] * self.size[1] * self.size[2]


@dataclass(frozen=True)
class DisjointTables:
    """Both directions of a map."""

    table: Tensor  # [N_out, K] int32, input of every slot, -1 where it is empty
    masks: Tensor | None  # [N_out, words] int32, its slot masks, if wanted
    table_t: Tensor | None  # [N_in, K] int32 of the transposed map, if it was wanted
    masks_t: Tensor | None  # [N_in, words] int32, its slot masks
    inverse: Tensor | None  # [N_in] int64, output of every input

    def kernel_map(
        self,
        n_in: int,
        n_out: int,
        counts: Tensor | None = None,
        row_counts: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> KernelMap:
        """The map of the first ``n_in`` inputs and ``n_out`` outputs."""
        (table,) = first_rows(n_out, self.table)
        masks = None if self.masks is None else first_rows(n_out, self.masks)[0]
        built = KernelMap.from_table(
            table, n_in, masks, counts, derive=DEVICE_LAYOUTS, row_counts=row_counts
        )
        if self.table_t is not None and self.masks_t is not None:
            table, masks = first_rows(n_in, self.table_t, self.masks_t)
            built.edges.layouts["table", True] = (table,)
            built.edges.layouts["masks", True] = (masks,)
        return built


def disjoint_maps(maps: Sequence[DisjointMap], key_format: KeyFormat) -> list[DisjointTables]:
    """Build maps of one device, `MAX_TASKS` in a launch."""
    tables: list[DisjointTables] = []
    for start in range(0, len(maps), MAX_TASKS):
        tables += _launch(maps[start : start + MAX_TASKS], key_format)
    return tables


def _launch(maps: Sequence[DisjointMap], key_format: KeyFormat) -> list[DisjointTables]:
    device = maps[0].source.keys.device
    # outputs are written by scatter: all tables start empty, in one launch each
    cells = [m.n_out * m.volume for m in maps]
    marks = [m.n_out * mask_words(m.volume) if m.both else 0 for m in maps]
    empty = torch.full((sum(cells),), -1, dtype=torch.int32, device=device).split_with_sizes(cells)
    flat = torch.zeros(sum(marks), dtype=torch.int32, device=device)  # no launch if none is due
    unset = flat.split_with_sizes(marks)
    tasks, results = [], []
    blocks = 0
    for entry, table, masks in zip(maps, empty, unset, strict=True):
        volume, rows = entry.volume, entry.source.rows
        words = mask_words(volume)
        tables = DisjointTables(
            table.view(-1, volume),
            masks.view(-1, words) if entry.both else None,
            torch.empty(rows, volume, dtype=torch.int32, device=device) if entry.both else None,
            torch.empty(rows, words, dtype=torch.int32, device=device) if entry.both else None,
            torch.empty(rows, dtype=torch.int64, device=device) if entry.both else None,
        )
        task = _TASK.pack(
            *entry.source.pointers,
            0 if entry.first is None else entry.first.data_ptr(),
            0 if entry.above is None else entry.above.data_ptr(),
            0 if entry.parent is None else entry.parent.data_ptr(),
            tables.table.data_ptr(),
            0 if tables.masks is None else tables.masks.data_ptr(),
            *(0 if t is None else t.data_ptr() for t in (tables.table_t, tables.masks_t)),
            0 if tables.inverse is None else tables.inverse.data_ptr(),
            0 if entry.counts is None else entry.counts.data_ptr(),
            rows,
            blocks,
            *entry.size,
            *entry.spacing,
            *key_format.axis_bits,
            words,
            int(entry.source.fixed),
        )
        tasks.append(task)
        results.append(tables)
        blocks += -(-rows // _THREADS)
    tasks += [_NO_TASK] * (MAX_TASKS - len(tasks)) + [_NUMBER.pack(len(maps))]
    module = cuda.module("disjoint.cu", device)
    module.launch("disjoint_map", blocks, b"".join(tasks), device)
    return results
