"""Triplets of a kernel map by row, on a device: lists for reductions, and places in the pairs."""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import Layout, by_out, has_table, rows_csr
from pcnn.kernels.cuda import module
from pcnn.maps.radix_sort import MAX_ITEMS, RadixSort, passes_of
from pcnn.maps.table_to_pairs import Places, chunk_rows, empty_pairs, places_in_table

#: Slots of a table whose rows are listed without a sort, as in ``csrc/table_rows.cu``.
MOST_SLOTS = 128

_TABLE_ROWS = struct.Struct("8P2q2i0q")
_KEYS = struct.Struct("6Pqi0q")
_LIST = struct.Struct("7P2qi0q")
_POSITIONS = struct.Struct("6P2qi0q")
_THREADS = 256

# as in csrc/levels.cu: blocks of a kernel that adds its histogram to the others'
_KEY_BLOCKS = 264


def places_layout(kernel_map: KernelMap) -> Layout:
    """Layout ``places`` of a map with a table: the tensors of `table_to_pairs.Places`."""
    return places_in_table(kernel_map.layout("table")[0])


def by_row_layout(kernel_map: KernelMap) -> Layout:
    """Layout ``by_out`` of a map on a device; see `pcnn.geometry.layouts.by_out`.

    Where a slot has one input, and an output one slot, the rows of the table are listed as they
    stand: inputs of a slot ascend where its outputs do, as on voxels, so the pairs are in one order
    from either side. A symmetric map gets the lists of both sides. Otherwise rows are sorted,
    stably. The host does not wait where it knows the pairs.
    """
    edges, other = kernel_map.edges, kernel_map.transpose()
    listed = all(edges.one_per_slot) and edges.volume <= MOST_SLOTS
    if not listed or not (has_table(kernel_map) or has_table(other)):
        return _sorted_positions(kernel_map)
    if edges.symmetric and not has_table(kernel_map):
        other.layout("by_out")
        return edges.layouts["by_out", kernel_map.flipped]
    (table,), places = kernel_map.layout("table"), Places(*kernel_map.layout("places"))
    triplets = int(kernel_map.offsets[-1])
    by_row, by_input = rows_of_table(table, places, triplets, edges.symmetric)
    if by_input is not None:
        edges.layouts["by_out", other.flipped] = by_input
    return by_row


def rows_of_table(
    table: Tensor, places: Places, triplets: int, symmetric: bool
) -> tuple[Layout, Layout | None]:
    """Places of the triplets of every row in the pairs of a table, by row, then slot."""
    (rows, volume), device = table.shape, table.device
    size = chunk_rows(rows)
    chunks = -(-rows // size)
    if not chunks:
        offsets = torch.zeros(1, dtype=torch.int64, device=device)
        none = torch.empty(0, dtype=torch.int32, device=device)
        empty = none, none.to(torch.int16), offsets
        return empty, empty if symmetric else None
    offsets = torch.empty(rows + 1, dtype=torch.int64, device=device)
    sides = 2 if symmetric else 1
    room = -(-triplets // 8) * 8  # lists begin at multiples of 16 bytes
    position = torch.empty(sides, room, dtype=torch.int32, device=device)
    slot = torch.empty(sides, room, dtype=torch.int16, device=device)
    own, others = (position[0], slot[0]), (position[-1], slot[-1])
    inputs = [one.data_ptr() for one in others] if symmetric else [0, 0]
    pointers = [one.data_ptr() for one in (table, *places, *own, offsets)]
    arguments = _TABLE_ROWS.pack(*pointers, *inputs, rows, chunks, volume, size)
    module("table_rows.cu", device).launch("list_table_rows", chunks, arguments, device)
    lists = [(one[:triplets], two[:triplets], offsets) for one, two in (own, others)]
    return lists[0], lists[1] if symmetric else None


def rows_from_pairs(kernel_map: KernelMap) -> Layout:
    """Layout ``rows_csr`` of a map on a device; see `pcnn.geometry.layouts.rows_csr`.

    One stable sort by row, which takes 24 bytes a triplet while it lasts. The host does not wait
    where it knows the pairs. More triplets than one sort takes are sorted in torch.
    """
    in_index, out_index, _ = kernel_map.layout("pairs")
    n, n_out, device = in_index.shape[0], kernel_map.n_out, in_index.device
    if n > MAX_ITEMS:
        return rows_csr(kernel_map)
    listed = empty_pairs(n, device)
    if not n:
        return *listed, torch.zeros(n_out + 1, dtype=torch.int64, device=device)
    offsets = torch.empty(n_out + 1, dtype=torch.int64, device=device)
    sort, ends = _sorted_by_row(out_index, n_out), _first_pairs(kernel_map)
    tensors = (sort.keys, sort.values, in_index, ends, *listed, offsets)
    pointers = (tensor.data_ptr() for tensor in tensors)
    arguments = _LIST.pack(*pointers, n, n_out, kernel_map.volume)
    module("rows_from_pairs.cu", device).launch("list_rows", -(-n // _THREADS), arguments, device)
    return *listed, offsets


def _sorted_positions(kernel_map: KernelMap) -> Layout:
    """Layout ``by_out`` of pairs by one stable sort by row, as in `rows_from_pairs`."""
    in_index, out_index, _ = kernel_map.layout("pairs")
    n, n_out, device = in_index.shape[0], kernel_map.n_out, in_index.device
    if not n or n > MAX_ITEMS:
        return by_out(kernel_map)
    position = torch.empty(n, dtype=torch.int32, device=device)
    slot = torch.empty(n, dtype=torch.int16, device=device)
    offsets = torch.empty(n_out + 1, dtype=torch.int64, device=device)
    sort, ends = _sorted_by_row(out_index, n_out), _first_pairs(kernel_map)
    tensors = (sort.keys, sort.values, ends, position, slot, offsets)
    pointers = (tensor.data_ptr() for tensor in tensors)
    arguments = _POSITIONS.pack(*pointers, n, n_out, kernel_map.volume)
    kernels = module("rows_from_pairs.cu", device)
    kernels.launch("list_positions", -(-n // _THREADS), arguments, device)
    return position, slot, offsets


def _sorted_by_row(out_index: Tensor, n_out: int) -> RadixSort:
    """Output rows of pairs and their positions, sorted."""
    n, device = out_index.shape[0], out_index.device
    sort, passes = RadixSort.of(n, device), passes_of(max(1, (n_out - 1).bit_length()))
    keys = _KEYS.pack(out_index.data_ptr(), *sort.pointers, n, passes)
    blocks = min(_KEY_BLOCKS, -(-n // _THREADS))
    module("rows_from_pairs.cu", device).launch("row_keys", blocks, keys, device)
    sort.run(passes)
    return sort


def _first_pairs(kernel_map: KernelMap) -> Tensor:
    """First pair of every slot on the device, ``[K + 1]`` int64."""
    ends: Tensor = torch.nn.functional.pad(kernel_map.layout("counts")[0].cumsum(0), (1, 0))
    return ends
