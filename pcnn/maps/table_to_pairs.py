"""Tables to pairs and back, by kernels that keep the promised order: by slot, then output row."""

from __future__ import annotations

import struct
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import Layout, check_table, has_steps, has_table, pairs, table
from pcnn.kernels import pinned
from pcnn.kernels.cuda import module

Pairs = tuple[Tensor, Tensor, Tensor]

#: Slots of a block and threads of the kernels, as in ``csrc/pairs.cu``.
STAGED_COLUMNS, PAIR_THREADS, PAIR_WARPS = 128, 256, 8

#: Rows of a chunk with counts of its own, and chunks that one pass scans quickly.
FEWEST_ROWS, MOST_ROWS, MANY_CHUNKS = 32, 1024, 1024

TABLE_ARGUMENTS = struct.Struct("6P3q3i0q")
SCAN_ARGUMENTS = struct.Struct("4P2qi0q")
REVERSE_ARGUMENTS = struct.Struct("2Pqi0q")
SCATTER_ARGUMENTS = struct.Struct("4Pqi0q")


#: Room for all triplets that there are.
UNBOUNDED = (1 << 63) - 1


class Places(NamedTuple):
    """Where the pairs of a table stand in their list."""

    starts: Tensor  # [K, chunks] int32, pairs of a slot in the chunks of rows before
    first: Tensor  # [K + 1] int64, first pair of every slot


def chunk_rows(rows: int) -> int:
    """Rows of a chunk where every (slot, chunk) has a count: chunks stay few, but fill a GPU."""
    size = FEWEST_ROWS
    while size < MOST_ROWS and rows > size * MANY_CHUNKS:
        size *= 2
    return size


def places_in_table(table: Tensor, totals: Tensor | None = None, room: int = UNBOUNDED) -> Places:
    """Places of the filled entries of a neighbour table ``[N_out, K]`` int32, by slot and row.

    ``totals`` ``[K]`` int64 takes their numbers, 0 from the first slot on that leaves the room.
    """
    (rows, volume), device = table.shape, table.device
    counts, starts = torch.empty(
        2, volume, -(-rows // chunk_rows(rows)), dtype=torch.int32, device=device
    ).unbind()
    places = Places(starts, torch.empty(volume + 1, dtype=torch.int64, device=device))
    _walk_table("count_table", table, counts, places, (0, 0), 0)
    scan_counts(counts, *places, totals, room)
    return places


def pairs_from_table(
    table: Tensor, offsets: Tensor | None = None, places: Places | None = None
) -> Pairs:
    """List the filled entries of a neighbour table by slot, then output row."""
    places = places or places_in_table(table)
    if offsets is None:
        offsets = torch.tensor(pinned.read_copy(places.first))
    return *list_table(table, places, int(offsets[-1])), offsets


def list_table(table: Tensor, places: Places, room: int) -> tuple[Tensor, Tensor]:
    """``in_index``, ``out_index`` ``[room]`` int32 of the filled entries of a table that fit."""
    in_index, out_index = empty_pairs(room, table.device)
    written = in_index.data_ptr(), out_index.data_ptr()
    _walk_table("fill_from_table", table, places.starts, places, written, room)
    return in_index, out_index


def _walk_table(
    kernel: str,
    table: Tensor,
    counts: Tensor,
    places: Places,
    written: tuple[int, int],
    room: int,
) -> None:
    """Launch a kernel that walks a table in chunks of rows and strips of slots."""
    rows, volume = table.shape
    size, strips = chunk_rows(rows), -(-volume // STAGED_COLUMNS)
    chunks = -(-rows // size)
    addresses = (tensor.data_ptr() for tensor in (table, counts, *places))
    arguments = TABLE_ARGUMENTS.pack(*addresses, *written, rows, chunks, room, volume, size, strips)
    module("pairs.cu", table.device).launch(kernel, chunks * strips, arguments, table.device)


def empty_pairs(triplets: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Room for ``in_index`` and ``out_index`` ``[T]`` int32 in one piece of memory.

    Both begin at multiples of 16 bytes: a kernel is launched quickest where all its tensors do.
    """
    room = torch.empty(2, -(-triplets // 4) * 4, dtype=torch.int32, device=device)
    return room[0, :triplets], room[1, :triplets]


def scan_counts(
    counts: Tensor,
    starts: Tensor,
    offsets: Tensor,
    totals: Tensor | None = None,
    room: int = UNBOUNDED,
) -> None:
    """Turn the triplets of every (slot, chunk of rows) into positions."""
    slots, chunks = counts.shape
    pointers = (tensor.data_ptr() for tensor in (counts, starts, offsets))
    summed = 0 if totals is None else totals.data_ptr()
    arguments = SCAN_ARGUMENTS.pack(*pointers, summed, chunks, room, slots)
    module("pairs.cu", counts.device).launch("scan_counts", slots, arguments, counts.device)


def transposed_table(table: Tensor, n_in: int) -> Tensor:
    """Neighbour table of the transposed map, ``[N_in, K]`` int32."""
    rows, volume = table.shape
    reversed_ = torch.full((n_in, volume), -1, dtype=torch.int32, device=table.device)
    arguments = REVERSE_ARGUMENTS.pack(table.data_ptr(), reversed_.data_ptr(), rows, volume)
    module("pairs.cu", table.device).launch(
        "reverse_table", -(-rows // PAIR_WARPS), arguments, table.device
    )
    return reversed_


def table_from_pairs(in_index: Tensor, out_index: Tensor, offsets: Tensor, n_out: int) -> Tensor:
    """Neighbour table ``[N_out,
    K]`` int32 of pairs that fill each slot of an output at most once.
    """
    device, volume = in_index.device, offsets.shape[0] - 1
    table = torch.full((n_out, volume), -1, dtype=torch.int32, device=device)
    there = offsets.to(device, non_blocking=True)
    pointers = (tensor.data_ptr() for tensor in (in_index, out_index, there, table))
    arguments = SCATTER_ARGUMENTS.pack(*pointers, in_index.shape[0], volume)
    module("pairs.cu", device).launch(
        "scatter_pairs", -(-in_index.shape[0] // PAIR_THREADS), arguments, device
    )
    return table


def pairs_layout(kernel_map: KernelMap) -> Layout:
    """Layout ``pairs`` of a map with a table; see `pcnn.geometry.layouts.pairs`."""
    if kernel_map.transpose().has("pairs") or not has_table(kernel_map):
        return pairs(kernel_map)  # the same triplets read backwards
    offsets = None
    for view in (kernel_map, kernel_map.transpose()):
        if view.has("offsets"):
            (offsets,) = view.layout("offsets")
    places = Places(*kernel_map.layout("places"))
    return pairs_from_table(kernel_map.layout("table")[0], offsets, places)


def table_layout(kernel_map: KernelMap) -> Layout:
    """Layout ``table`` from the other side's table, or from pairs."""
    check_table(kernel_map)
    other = kernel_map.transpose()
    if has_steps(kernel_map) or (kernel_map.symmetric and has_table(other)):
        return table(kernel_map)
    if has_table(other):
        return (transposed_table(other.layout("table")[0], kernel_map.n_out),)
    in_index, out_index, offsets = kernel_map.layout("pairs")
    return (table_from_pairs(in_index, out_index, offsets, kernel_map.n_out),)
