"""Tables to pairs and back, and triplets by row, by kernels that keep the promised orders."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import KernelMap, layouts
from pcnn.geometry.layouts import Layout, check_table, has_steps, has_table, pairs, table
from pcnn.kernels.cuda import module
from pcnn.kernels.streams import host_copy
from pcnn.maps.radix_sort import KEY_BLOCKS, MAX_ITEMS, RadixSort, passes_of

#: Slots of a block and threads of the kernels, as in ``csrc/pairs.cu``.
STAGED_COLUMNS, PAIR_THREADS, PAIR_WARPS = 128, 256, 8

#: Slots of a table whose rows are listed without a sort, as in ``csrc/rows.cu``.
MOST_SLOTS = 128

#: Rows of a chunk with counts of its own, and chunks that one pass scans quickly.
FEWEST_ROWS, MOST_ROWS, MANY_CHUNKS = 32, 1024, 1024


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


def places_in_table(table: Tensor) -> Places:
    """Places of the filled entries of a neighbour table ``[N_out, K]`` int32, by slot and row."""
    (rows, volume), device = table.shape, table.device
    counts, starts = torch.empty(
        2, volume, -(-rows // chunk_rows(rows)), dtype=torch.int32, device=device
    ).unbind()
    places = Places(starts, torch.empty(volume + 1, dtype=torch.int64, device=device))
    _walk_table("count_table", table, places, counts)
    scan_counts((counts, *places))
    return places


def list_table(table: Tensor, places: Places, room: int) -> tuple[Tensor, Tensor]:
    """``in_index``, ``out_index`` ``[room]`` int32 of the filled entries of a table that fit."""
    both = torch.empty(2, in_quads(room), dtype=torch.int32, device=table.device)
    in_index, out_index = both[:, :room]
    _walk_table("fill_from_table", table, places, None, in_index, out_index, room)
    return in_index, out_index


def _walk_table(
    kernel: str, table: Tensor, places: Places, counts: Tensor | None, *given: Any
) -> None:
    """Launch a kernel that walks a table in chunks of rows and strips of slots."""
    n, volume = table.shape
    rows, strips = chunk_rows(n), -(-volume // STAGED_COLUMNS)
    chunks = -(-n // rows)
    *pairs, room = given or (None, None, 0)
    values = table, counts, *places, *pairs, n, chunks, room, volume, rows, strips
    module("pairs.cu", table.device).launch(kernel, chunks * strips, *values)


def in_quads(number: int) -> int:
    """Room for so many int32, a multiple of 16 bytes."""
    return -(-number // 4) * 4


def scan_counts(*scans: tuple[Tensor, Tensor, Tensor]) -> None:
    """Turn triplets of every (slot, chunk of rows) into positions: (counts, starts, offsets)."""
    tasks, slots = [], 0
    for counts, starts, offsets in scans:
        volume, chunks = counts.shape
        tasks.append((counts, starts, offsets, chunks, volume, slots))
        slots += volume
    module("pairs.cu", scans[0][0].device).launch("scan_counts", slots, len(tasks), tasks)


def transposed_table(table: Tensor, n_in: int) -> Tensor:
    """Neighbour table of the transposed map, ``[N_in, K]`` int32."""
    n, volume = table.shape
    turned = torch.full((n_in, volume), -1, dtype=torch.int32, device=table.device)
    launch = module("pairs.cu", table.device).launch
    launch("reverse_table", -(-n // PAIR_WARPS), table=table, reversed=turned, n=n, volume=volume)
    return turned


def pairs_layout(kernel_map: KernelMap) -> Layout:
    """Layout ``pairs`` of a map with a table; see `pcnn.geometry.layouts.pairs`."""
    other = kernel_map.transpose()
    if other.has("pairs") or not has_table(kernel_map):
        return pairs(kernel_map)  # the same triplets read backwards
    places = Places(*kernel_map.layout("places"))
    known = [view.layout("offsets")[0] for view in (kernel_map, other) if view.has("offsets")]
    offsets = known[0] if known else host_copy(places.first)
    return *list_table(kernel_map.layout("table")[0], places, int(offsets[-1])), offsets


def list_in_room(kernel_map: KernelMap, room: int) -> None:
    """Give a map with a table ``pairs`` in a room of fixed size; of offsets no host knows."""
    table = kernel_map.layout("table")[0]
    places = places_in_table(table)
    own = *list_table(table, places, room), places.first.to("meta")
    kernel_map.edges.layouts["pairs", kernel_map.flipped] = own


def table_layout(kernel_map: KernelMap) -> Layout:
    """Layout ``table`` from the other side's table, or as torch makes it."""
    check_table(kernel_map)
    other = kernel_map.transpose()
    if has_steps(kernel_map) or kernel_map.symmetric or not has_table(other):
        return table(kernel_map)
    return (transposed_table(other.layout("table")[0], kernel_map.n_out),)


def places_layout(kernel_map: KernelMap) -> Layout:
    """Layout ``places`` of a map with a table: the tensors of `Places`."""
    return places_in_table(kernel_map.layout("table")[0])


def rows_from_pairs(kernel_map: KernelMap) -> Layout:
    """Layout ``rows_csr`` of a map on a device; see `pcnn.geometry.layouts.rows_csr`."""
    return _by_row(kernel_map, kernel_map.in_index) or layouts.rows_csr(kernel_map)


def by_row_layout(kernel_map: KernelMap) -> Layout:
    """Layout ``by_out`` of a map on a device; see `pcnn.geometry.layouts.by_out`."""
    edges, other = kernel_map.edges, kernel_map.transpose()
    listed = all(edges.one_per_slot) and edges.volume <= MOST_SLOTS
    if not listed or not (has_table(kernel_map) or has_table(other)):
        position, slots, row_offsets = _by_row(kernel_map, None) or layouts.by_out(kernel_map)
        return position, slots.to(torch.int16), row_offsets
    if edges.symmetric and not has_table(kernel_map):
        other.layout("by_out")  # makes both
        return edges.layouts["by_out", kernel_map.flipped]
    (table,), places = kernel_map.layout("table"), kernel_map.layout("places")
    (n, volume), device, triplets = table.shape, table.device, int(kernel_map.offsets[-1])
    # lists begin at multiples of 16 bytes; those of a symmetric map are its inputs' too
    size = 1 + edges.symmetric, -(-triplets // 8) * 8
    position = torch.empty(size, dtype=torch.int32, device=device)
    slots = torch.empty(size, dtype=torch.int16, device=device)
    row_offsets, rows = torch.zeros(n + 1, dtype=torch.int64, device=device), chunk_rows(n)
    back = (position[1], slots[1]) if edges.symmetric else (None, None)
    given = table, *places, position[0], slots[0], row_offsets, *back, n, -(-n // rows)
    module("rows.cu", device).launch("list_table_rows", -(-n // rows), *given, volume, rows)
    if edges.symmetric:
        own = position[1, :triplets], slots[1, :triplets], row_offsets
        edges.layouts["by_out", other.flipped] = own
    return position[0, :triplets], slots[0, :triplets], row_offsets


def _by_row(kernel_map: KernelMap, listed: Tensor | None) -> Layout | None:
    """What is listed of triplets, or their places, and their slots, by one stable sort by row."""
    (_, out_index, _), (counts,) = kernel_map.layout("pairs"), kernel_map.layout("counts")
    n, n_out, device = len(out_index), kernel_map.n_out, out_index.device
    if not 0 < n <= MAX_ITEMS:
        return None
    kernels, blocks = module("rows.cu", device), -(-n // PAIR_THREADS)
    sort, passes = RadixSort.of(n, device), passes_of(max(1, (n_out - 1).bit_length()))
    kernels.launch("row_keys", min(KEY_BLOCKS, blocks), out_index, sort.buffers, n, passes)
    sort.run(passes)
    # apart, so that each is freed without the other: steps keep the inputs
    index, slots = (torch.empty_like(out_index) for _ in range(2))
    row_offsets = torch.empty(n_out + 1, dtype=torch.int64, device=device)
    made, given = (index, slots, row_offsets), (sort.keys, sort.values, listed, counts)
    kernels.launch("list_rows", blocks, *given, *made, n, n_out)
    return made
