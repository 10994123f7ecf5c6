"""Memory layouts of a kernel map, derived from whichever of them its builder wrote.

Every function takes a kernel map and returns the tensors of one layout, in the order in which a
dataflow receives them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pcnn.geometry.bags import bags_of
from pcnn.geometry.gray_order import bits
from pcnn.geometry.row_lists import row_lists as lists_of_rows
from pcnn.geometry.slot_subsets import half_pairs, hybrid, slot_norms
from pcnn.geometry.slot_tiles import TILE_ROWS as TILE_ROWS
from pcnn.geometry.slot_tiles import fitting_tiles, kernel_size, section_tiles, tiles
from pcnn.geometry.tile_table import check_source, has_table, has_tiles, table_of_tiles

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

Layout = tuple[Tensor, ...]

#: Largest neighbour table that is built, in bytes; beyond it only the other layouts serve.
TABLE_BUDGET_BYTES = 16 << 30

#: Output rows of a block on a CPU; elsewhere one block holds all rows.
BLOCK_ROWS = 4096

#: Bits of a mask word: one less than an int32 has, so that no mask is negative.
MASK_BITS = 31


def pairs(kernel_map: KernelMap) -> Layout:
    """``in_index [T]``, ``out_index [T]`` int32 by slot, ``offsets [K + 1]`` int64 on the host."""
    other = kernel_map.transpose()
    if other.has("pairs") or not has_table(kernel_map):
        check_source(other, "pairs")
        out_index, in_index, offsets = other.layout("pairs")  # the same triplets read backwards
        return in_index, out_index, offsets
    columns = kernel_map.layout("table")[0].t()  # [K, N_out]
    slots, out_index = (columns >= 0).nonzero(as_tuple=True)
    offsets = _offsets(slots, kernel_map.volume).cpu()
    return columns[slots, out_index], out_index.to(torch.int32), offsets


def counts(kernel_map: KernelMap) -> Layout:
    """``[K]`` int64 triplets of every slot, on the map's device."""
    other = kernel_map.transpose()
    if other.has("counts"):
        return other.layout("counts")
    if kernel_map.has("table"):
        return ((kernel_map.layout("table")[0] >= 0).sum(0),)
    in_index, _, offsets = kernel_map.layout("pairs")
    # a few bytes that the driver stages at once: the host does not wait for the device
    return ((offsets[1:] - offsets[:-1]).to(in_index.device, non_blocking=True),)


def offsets(kernel_map: KernelMap) -> Layout:
    """``[K + 1]`` int64 on the host: triplets of slot k are ``offsets[k]..offsets[k + 1]``."""
    for view in (kernel_map, kernel_map.transpose()):
        if view.has("pairs"):
            return view.layout("pairs")[2:]
    ends = torch.cumsum(kernel_map.layout("counts")[0].cpu(), 0)
    return (torch.nn.functional.pad(ends, (1, 0)),)


def check_table(kernel_map: KernelMap) -> None:
    """Refuse a neighbour table that cannot exist or is too large.

    Raises:
        ValueError: a slot may hold several inputs, or the table exceeds the memory budget.
    """
    if not kernel_map.one_per_slot:
        raise ValueError(
            "this kernel map has slots with several inputs, so it has no neighbour table; use the "
            "layouts pairs or rows_csr"
        )
    check_table_size(kernel_map.n_out, kernel_map.volume)


def check_table_size(rows: int, volume: int) -> None:
    """Refuse a neighbour table that takes too much memory.

    Raises:
        ValueError: the table exceeds the memory budget.
    """
    size = 4 * rows * volume
    if size > TABLE_BUDGET_BYTES:
        raise ValueError(
            f"a neighbour table of {rows} rows x {volume} slots takes {size} bytes, over the "
            f"budget of {TABLE_BUDGET_BYTES}; use the layout pairs"
        )


def table(kernel_map: KernelMap) -> Layout:
    """Neighbour table ``[N_out, K]`` int32: input row of every slot, -1 where it is empty.

    Raises:
        ValueError: as in `check_table`.
    """
    check_table(kernel_map)
    if has_tiles(kernel_map):
        return (table_of_tiles(kernel_map),)
    rows, volume = kernel_map.n_out, kernel_map.volume
    other = kernel_map.transpose()
    if kernel_map.symmetric and has_table(other):
        return (other.layout("table")[0].flip(1),)
    in_index, out_index, _ = kernel_map.layout("pairs")
    neighbours = in_index.new_full((rows * volume,), -1)
    neighbours[out_index.long() * volume + kernel_map.slot_index] = in_index
    return (neighbours.view(rows, volume),)


def mask_words(volume: int) -> int:
    """Words of the slot mask of a row, for a kernel of so many slots."""
    return -(-volume // MASK_BITS)


def masks(kernel_map: KernelMap) -> Layout:
    """``[N_out, ceil(K / 31)]`` int32: bit ``k % 31`` of word ``k // 31`` is set if k is filled."""
    occupied = kernel_map.layout("table")[0] >= 0  # [N_out, K]
    words = [bits(part) for part in torch.split(occupied, MASK_BITS, dim=1)]
    return (torch.stack(words, dim=1).to(torch.int32),)


def rows_csr(kernel_map: KernelMap) -> Layout:
    """Triplets by output row, then slot: ``in_index``, ``slot_index`` int32, ``row_offsets``.

    ``row_offsets [N_out + 1]`` int64: triplets of output row i are ``row_offsets[i]..[i + 1]``.
    """
    # stable: triplets are sorted by slot already, so within a row slots stay ascending
    order = torch.argsort(kernel_map.out_index, stable=True)
    slots = kernel_map.slot_index[order].to(torch.int32)
    return kernel_map.in_index[order], slots, _offsets(kernel_map.out_index, kernel_map.n_out)


def columns_csr(kernel_map: KernelMap) -> Layout:
    """Triplets by input row, then slot: ``out_index``, ``slot_index`` int32, ``column_offsets``.

    ``column_offsets [N_in + 1]`` int64: triplets of input row j are
    ``column_offsets[j]..[j + 1]``.
    """
    return kernel_map.transpose().layout("rows_csr")


def row_lists(kernel_map: KernelMap) -> Layout:
    """See `pcnn.geometry.row_lists.row_lists`.

    Raises:
        ValueError: as there, or ranges that exceed the memory budget of a table.
    """
    check_table_size(kernel_map.n_out, kernel_map.volume + 1)
    return lists_of_rows(kernel_map)


def by_out(kernel_map: KernelMap) -> Layout:
    """Where in ``pairs`` the triplets of every output row are, in the order of their slots.

    Returns:
        ``position [T]`` int32 into ``pairs``; ``slot [T]`` int16 of the triplet there;
        ``row_offsets [N_out + 1]`` int64: those of output row i are ``row_offsets[i]..[i + 1]``.
    """
    in_index, out_index, _ = kernel_map.layout("pairs")
    (sizes,) = kernel_map.layout("counts")
    names = torch.arange(kernel_map.volume, dtype=torch.int16, device=in_index.device)
    slots = torch.repeat_interleave(names, sizes, output_size=in_index.shape[0])
    # stable: pairs lie by slot already, so within a row slots stay ascending
    position = torch.argsort(out_index, stable=True)
    return position.to(torch.int32), slots[position], _offsets(out_index, kernel_map.n_out)


def by_in(kernel_map: KernelMap) -> Layout:
    """The same as `by_out` for every input row; positions count in the same ``pairs``."""
    return kernel_map.transpose().layout("by_out")


def identity_slot(kernel_map: KernelMap) -> Layout:
    """``[1]`` int64 on the host: the slot that takes every row to itself, -1 if none is known.

    It is the central slot of a symmetric map with an odd number of slots, if it holds no other
    triplets (on native points it may hold near neighbours too).
    """
    centre = kernel_map.volume // 2
    ends = kernel_map.offsets[centre : centre + 2]
    central = kernel_map.symmetric and kernel_map.volume % 2 == 1
    known = central and int(ends[1] - ends[0]) == kernel_map.n_in
    return (torch.tensor([centre if known else -1]),)


def blocks(kernel_map: KernelMap) -> Layout:
    """Triplets by block of output rows, then slot, and how each row sums its products.

    Returns:
        ``in_index [T]``, ``out_index [T]`` int32 in that order; ``by_row [T]`` int32, positions of
        the triplets sorted by output row; ``row_offsets [N_out + 1]`` int64 into ``by_row``; on the
        host ``segments [S, 4]`` int64 (block, slot, first and one-past-last triplet) and
        ``shape [2]`` int64 (K, rows of a block).
    """
    other = kernel_map.transpose()
    if kernel_map.symmetric and other.has("blocks"):
        return mirrored_blocks(other.layout("blocks"))
    volume, n_out = kernel_map.volume, kernel_map.n_out
    if kernel_map.in_index.device.type != "cpu":
        return _one_block(kernel_map)
    rows = BLOCK_ROWS
    block = torch.div(kernel_map.out_index, rows, rounding_mode="floor")
    place = block * volume + kernel_map.slot_index  # block-major, slot-minor
    order = torch.argsort(place, stable=True)
    counts = torch.bincount(place, minlength=-(-n_out // rows) * volume).cpu()
    ends = torch.cumsum(counts, 0)
    number = torch.arange(counts.shape[0])
    fields = (number // volume, number % volume, ends - counts, ends)
    segments = torch.stack(fields, dim=1)[counts > 0]
    out_index = kernel_map.out_index[order]
    by_row = torch.argsort(out_index, stable=True).to(torch.int32)
    shape = torch.tensor([volume, rows])
    in_index = kernel_map.in_index[order]
    return in_index, out_index, by_row, _offsets(out_index, n_out), segments, shape


def bags(kernel_map: KernelMap) -> Layout:
    """Inputs by block of output rows, then slot, then row: those of one slot of one row are a bag.

    Returns:
        ``in_index [T]`` int32 in that order; ``starts [S + 1]`` int64: bag s is
        ``in_index[starts[s]..starts[s + 1]]``, none is empty; ``out_index [S]`` int32, the output
        row of every bag; ``by_row [S]`` int32, bags sorted by output row, then slot;
        ``row_offsets [N_out + 1]`` int64 into ``by_row``; on the host ``segments [.., 4]`` int64
        (block, slot, first and one-past-last bag) and ``shape [2]`` int64 (K, rows of a block).
    """
    other = kernel_map.transpose()
    if kernel_map.symmetric and other.has("bags"):
        return mirrored_blocks(other.layout("bags"))
    on_host = kernel_map.in_index.device.type == "cpu"
    return bags_of(kernel_map, BLOCK_ROWS if on_host else max(1, kernel_map.n_out))


def _one_block(kernel_map: KernelMap) -> Layout:
    """Blocks of a map whose output rows are one block: the order of the pairs, and no host sync."""
    in_index, out_index, offsets = kernel_map.layout("pairs")
    ends = offsets[1:]
    slots = torch.arange(kernel_map.volume)
    fields = torch.stack((torch.zeros_like(slots), slots, offsets[:-1], ends), dim=1)
    by_row = torch.argsort(out_index, stable=True).to(torch.int32)
    shape = torch.tensor([kernel_map.volume, max(1, kernel_map.n_out)])
    starts = _offsets(out_index, kernel_map.n_out)
    return in_index, out_index, by_row, starts, fields[ends > offsets[:-1]], shape


def mirrored_blocks(layout: Layout) -> Layout:
    """Blocks, or bags, of the transpose of a symmetric map, from the map's own.

    ``(i, j, k)`` and ``(j, i, K - 1 - k)`` are both triplets, so only the slots change their names.
    """
    *tensors, segments, shape = layout
    mirrored = segments.clone()
    mirrored[:, 1] = shape[0] - 1 - segments[:, 1]
    return *tensors, mirrored, shape


def _offsets(index: Tensor, rows: int) -> Tensor:
    """Start of every row's run in a list sorted by row, from the unsorted row indices."""
    if index.device.type == "cpu":
        counts = torch.bincount(index, minlength=rows)
    else:  # bincount asks the device for its largest value
        counts = torch.zeros(rows, dtype=torch.int64, device=index.device)
        counts.index_add_(0, index, torch.ones_like(index, dtype=torch.int64))
    offsets = counts.new_zeros(rows + 1)
    torch.cumsum(counts, 0, out=offsets[1:])
    return offsets


#: Layouts by the name a dataflow asks for.
LAYOUTS: dict[str, Callable[[KernelMap], Layout]] = {
    "pairs": pairs,
    "counts": counts,
    "offsets": offsets,
    "table": table,
    "masks": masks,
    "rows_csr": rows_csr,
    "columns_csr": columns_csr,
    "row_lists": row_lists,
    "by_out": by_out,
    "by_in": by_in,
    "identity_slot": identity_slot,
    "blocks": blocks,
    "bags": bags,
    "tiles": tiles,
    "section_tiles": section_tiles,
    "fitting_tiles": fitting_tiles,
    "kernel_size": kernel_size,
    "half_pairs": half_pairs,
    "slot_norms": slot_norms,
}

#: Layouts with a threshold, asked for as ``name:threshold``.
WITH_THRESHOLD: dict[str, Callable[..., Layout]] = {"hybrid": hybrid}


def layout_function(name: str) -> Callable[[KernelMap], Layout]:
    """The function that derives a layout, by the name a dataflow asks for.

    Args:
        name: a key of `LAYOUTS`, or one of `WITH_THRESHOLD` and an integer, such as ``hybrid:3``.

    Raises:
        ValueError: unknown name, or a threshold that is missing or no natural number.
    """
    if name in LAYOUTS:
        return LAYOUTS[name]
    base, _, setting = name.partition(":")
    if base in WITH_THRESHOLD and setting.isdecimal():
        return functools.partial(WITH_THRESHOLD[base], threshold=int(setting))
    names = [*LAYOUTS, *(f"{base}:<threshold>" for base in WITH_THRESHOLD)]
    raise ValueError(f"unknown layout {name!r}; there are {', '.join(names)}")
