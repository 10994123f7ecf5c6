"""Ranges of inputs of tiles on a device, by the kernels of ``csrc/row_lists.cu``, for many maps."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import Layout, check_table_size
from pcnn.geometry.row_lists import GRAY_BITS, check_triplets, stored_steps
from pcnn.geometry.slot_tiles import TILE_ROWS
from pcnn.kernels import cuda
from pcnn.maps.radix_sort import RadixSort, passes_of

MAX_TASKS = 24

#: Bits of sort keys, as in ``csrc/row_lists.cu``: of a row's level, and of a tile's steps.
LEVEL_BITS, LENGTH_BITS = 4, 24

#: Tensors of the layout that are made here; the rest is scratch.
KEPT = 5

_TASK = struct.Struct("10P4q2i0q")
_NO_TASK = b"\0" * _TASK.size
_ARGUMENTS = struct.Struct("8Pq2i0q")
_THREADS = 256

# as in csrc/levels.cu: blocks of a kernel that adds its histogram to the others'
_KEY_BLOCKS = 264


def row_lists(kernel_map: KernelMap) -> Layout:
    """Layout ``row_lists`` of one map; see `pcnn.geometry.row_lists.row_lists`."""
    return list_rows([kernel_map])[0]


def list_rows(views: Sequence[KernelMap]) -> list[Layout]:
    """`row_lists` of several maps of one device after two sorts in all; nothing waits."""
    found: list[Layout] = []
    for start in range(0, len(views), MAX_TASKS):
        found += _batch([_View.of(view) for view in views[start : start + MAX_TASKS]])
    return found


class _View(NamedTuple):
    """A map to be tiled: its triplets by row, and sizes."""

    rows_csr: Layout
    rows: int
    volume: int
    tiles: int
    stored: int

    @classmethod
    def of(cls, view: KernelMap) -> _View:
        check_table_size(view.n_out, view.volume + 1)
        rows_csr, tiles = view.layout("rows_csr"), -(-view.n_out // TILE_ROWS)
        triplets = rows_csr[0].shape[0]
        check_triplets(triplets)
        stored = stored_steps(triplets, tiles, view.volume)
        return cls(rows_csr, view.n_out, view.volume, tiles, stored)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of output rows, starts, first steps, slots and inputs of steps; then of scratch."""
        starts = self.tiles, self.volume + 1, TILE_ROWS
        rows, steps = (self.tiles, TILE_ROWS), (self.stored, TILE_ROWS)
        kept = rows, starts, (self.tiles + 1,), (self.stored,), steps
        return *kept, (self.tiles, self.volume), (2, self.volume)


def _batch(views: Sequence[_View]) -> list[Layout]:
    device = views[0].rows_csr[0].device
    items, tiles = sum(v.rows for v in views), sum(v.tiles for v in views)
    layouts = [_empty(view, device) for view in views]
    packed = _tasks(views, layouts)
    lengths = torch.empty(tiles, dtype=torch.int32, device=device)
    map_bits, kernels = (len(views) - 1).bit_length(), cuda.module("row_lists.cu", device)
    rows, order = RadixSort.of(items, device), RadixSort.of(tiles, device)

    def launch(name: str, blocks: int, sort: RadixSort, number: int, passes: int) -> None:
        found = rows.values.data_ptr(), order.values.data_ptr(), lengths.data_ptr()
        arguments = _ARGUMENTS.pack(*sort.pointers, *found, number, len(views), passes) + packed
        counters = {"slot_bits": 2, "tile_lengths": 1}.get(name, 0)  # for every slot
        shared = 4 * counters * max(v.volume for v in views)
        kernels.launch(name, blocks, arguments, device, shared_bytes=shared)

    passes = passes_of(GRAY_BITS + LEVEL_BITS + map_bits)
    launch("slot_bits", len(views), rows, 0, 0)
    launch("row_keys", _blocks(items), rows, items, passes)
    rows.run(passes)
    launch("tile_lengths", tiles, rows, tiles, 0)
    passes = passes_of(LENGTH_BITS + map_bits)
    launch("tile_keys", _blocks(tiles), order, tiles, passes)
    order.run(passes)
    launch("first_steps", len(views), order, tiles, 0)
    launch("tile_ranges", tiles, order, tiles, 0)
    return [(*layout[:KEPT], view.rows_csr[0]) for view, layout in zip(views, layouts, strict=True)]


def _tasks(views: Sequence[_View], layouts: Sequence[tuple[Tensor, ...]]) -> bytes:
    """Arguments of the kernels for every map."""
    tasks: list[bytes] = []
    item = tile = 0
    for view, layout in zip(views, layouts, strict=True):
        *kept, most, bits = layout
        tensors = *view.rows_csr, bits, *kept, most
        pointers = (tensor.data_ptr() for tensor in tensors)
        begins = view.rows, item, tile, view.stored
        tasks.append(_TASK.pack(*pointers, *begins, view.tiles, view.volume))
        item, tile = item + view.rows, tile + view.tiles
    return b"".join([*tasks, *[_NO_TASK] * (MAX_TASKS - len(tasks))])


def _blocks(items: int) -> int:
    return max(1, min(_KEY_BLOCKS, -(-items // _THREADS)))


def _empty(view: _View, device: torch.device) -> tuple[Tensor, ...]:
    """Room for a layout, and scratch, which is apart so that it is freed."""
    sizes = [_size(shape) for shape in view.shapes]
    # every part begins at 16 bytes
    parts = [
        part
        for own in (sizes[:KEPT], sizes[KEPT:])
        for part in torch.empty(sum(own), dtype=torch.int32, device=device).split_with_sizes(own)
    ]
    found = zip(parts, view.shapes, strict=True)
    return tuple(part[: torch.Size(shape).numel()].view(shape) for part, shape in found)


def _size(shape: tuple[int, ...]) -> int:
    return -(-torch.Size(shape).numel() // 4) * 4
