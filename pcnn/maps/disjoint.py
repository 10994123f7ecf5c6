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

from pcnn.geometry import Kernel, KernelMap, KeyLayout
from pcnn.geometry.kernel import Triple
from pcnn.kernels import cuda
from pcnn.maps.native import NATIVE
from pcnn.maps.windowed import Sites, words_of

MAX_TASKS = 16

_TASK = struct.Struct("PPPPPPPPPPqq3i3i3ii0q")
_NO_TASK = b"\0" * _TASK.size
_THREADS = 256


@dataclass(frozen=True)
class DisjointMap:
    """One map of a kernel that tiles space, and what is known of its sites.

    Args:
        source: input sites.
        first: ``[N_in]`` int32, a finest row inside every input; ``None``: the inputs are finest.
        parent: ``[finest rows]`` int32, output of every finest row.
        kernel: the relation.
        spacing: tensor stride of the inputs.
        n_out: rows there is room for on the output side.
        counts: ``[K]`` int32, zeroed, for the triplets of every slot; ``None`` to leave them.
    """

    source: Sites
    first: Tensor | None
    parent: Tensor
    kernel: Kernel
    spacing: Triple
    n_out: int
    counts: Tensor | None = None


@dataclass(frozen=True)
class DisjointTables:
    """Both directions of a map.

    Args:
        table: ``[N_out, K]`` int32; ``masks`` ``[N_out, words]`` int32 its slot masks.
        masks: see ``table``.
        table_t: ``[N_in, K]`` int32 of the transposed map; ``masks_t`` its slot masks.
        masks_t: see ``table_t``.
        inverse: ``[N_in]`` int64, output of every input.
    """

    table: Tensor
    masks: Tensor
    table_t: Tensor
    masks_t: Tensor
    inverse: Tensor

    def kernel_map(self, n_in: int, n_out: int, counts: Tensor | None) -> KernelMap:
        """The map of the first ``n_in`` inputs and ``n_out`` outputs."""
        built = KernelMap.from_table(
            self.table[:n_out], n_in, self.masks[:n_out], counts, derive=NATIVE
        )
        built.edges.layouts["table", True] = (self.table_t[:n_in],)
        built.edges.layouts["masks", True] = (self.masks_t[:n_in],)
        return built


def disjoint_maps(maps: Sequence[DisjointMap], layout: KeyLayout) -> list[DisjointTables]:
    """Build maps of one device, `MAX_TASKS` in a launch."""
    tables: list[DisjointTables] = []
    for start in range(0, len(maps), MAX_TASKS):
        tables += _launch(maps[start : start + MAX_TASKS], layout)
    return tables


def _launch(maps: Sequence[DisjointMap], layout: KeyLayout) -> list[DisjointTables]:
    device = maps[0].source.keys.device
    # outputs are written by scatter: all tables start empty, in one launch each
    empty = torch.full(
        (sum(m.n_out * m.kernel.volume for m in maps),), -1, dtype=torch.int32, device=device
    )
    unset = torch.zeros(
        sum(m.n_out * words_of(m.kernel.volume) for m in maps), dtype=torch.int32, device=device
    )
    tasks, results = [], []
    blocks = cell = word = 0
    for entry in maps:
        volume, words, rows = entry.kernel.volume, words_of(entry.kernel.volume), entry.source.rows
        tables = DisjointTables(
            empty[cell : cell + entry.n_out * volume].view(entry.n_out, volume),
            unset[word : word + entry.n_out * words].view(entry.n_out, words),
            torch.empty(rows, volume, dtype=torch.int32, device=device),
            torch.empty(rows, words, dtype=torch.int32, device=device),
            torch.empty(rows, dtype=torch.int64, device=device),
        )
        cell, word = cell + entry.n_out * volume, word + entry.n_out * words
        keys, count = entry.source.pointers
        tasks.append(
            _TASK.pack(
                keys,
                count,
                0 if entry.first is None else entry.first.data_ptr(),
                entry.parent.data_ptr(),
                tables.table.data_ptr(),
                tables.masks.data_ptr(),
                tables.table_t.data_ptr(),
                tables.masks_t.data_ptr(),
                tables.inverse.data_ptr(),
                0 if entry.counts is None else entry.counts.data_ptr(),
                rows,
                blocks,
                *entry.kernel.size,
                *entry.spacing,
                *layout.axis_bits,
                words,
            )
        )
        blocks += -(-rows // _THREADS)
        results.append(tables)
    arguments = b"".join([*tasks, *[_NO_TASK] * (MAX_TASKS - len(tasks))])
    arguments += struct.pack("i0q", len(tasks))
    cuda.module("disjoint.cu", device).launch("disjoint_map", blocks, arguments, device)
    return results
