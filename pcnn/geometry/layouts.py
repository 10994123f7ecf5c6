"""Memory layouts of a kernel map, derived from whichever of them its builder wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from pcnn.geometry.tile_steps import STEPS as NAMES
from pcnn.geometry.tile_steps import Layout as Layout
from pcnn.geometry.tile_steps import check_table_size, fitting_steps, steps, table_of_steps

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

#: Bits of a mask word: one less than an int32 has, so that no mask is negative.
MASK_BITS = 31
#: Output rows of a block on a CPU; elsewhere one block holds all rows.
BLOCK_ROWS = 4096


def has_steps(kernel_map: KernelMap) -> bool:
    """True if a side has steps that its table follows from."""
    return kernel_map.one_per_slot and any(kernel_map.has(name) for name in NAMES)


def has_table(kernel_map: KernelMap) -> bool:
    """True if a side's table is there, or follows from its steps."""
    return kernel_map.has("table") or has_steps(kernel_map)


def pairs(kernel_map: KernelMap) -> Layout:
    """``in_index [T]``, ``out_index [T]`` int32 by slot, ``offsets [K + 1]`` int64 on the host."""
    other = kernel_map.transpose()
    if other.has("pairs") or not has_table(kernel_map):
        if not (other.has("pairs") or has_table(other)):  # sides would wait for each other
            raise ValueError("no pairs of a map with neither pairs nor a table nor steps")
        out_index, in_index, offsets = other.layout("pairs")  # the same triplets read backwards
        return in_index, out_index, offsets
    columns = kernel_map.layout("table")[0].t()  # [K, N_out]
    slots, out_index = (columns >= 0).nonzero(as_tuple=True)
    offsets = row_starts(slots, kernel_map.volume).cpu()
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
    return (pad(ends, (1, 0)),)


def check_table(kernel_map: KernelMap) -> None:
    """Refuse a neighbour table that cannot exist or is too large."""
    if not kernel_map.one_per_slot:
        raise ValueError("a kernel map with several inputs in a slot has no neighbour table")
    check_table_size(kernel_map.n_out, kernel_map.volume)


def table(kernel_map: KernelMap) -> Layout:
    """Neighbour table ``[N_out, K]`` int32: input row of every slot, -1 where it is empty."""
    check_table(kernel_map)
    for name in NAMES:
        if kernel_map.has(name):
            found = kernel_map.layout(name)
            return (table_of_steps(found, kernel_map.n_out, kernel_map.volume),)
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
    occupied = (kernel_map.layout("table")[0] >= 0).to(torch.int64)  # [N_out, K]
    bits = occupied << torch.arange(kernel_map.volume, device=occupied.device) % MASK_BITS
    words = [part.sum(1) for part in torch.split(bits, MASK_BITS, dim=1)]
    return (torch.stack(words, dim=1).to(torch.int32),)


def rows_csr(kernel_map: KernelMap) -> Layout:
    """Triplets by output row, then slot: ``in_index``, ``slot_index`` int32, ``row_offsets``.

    ``row_offsets [N_out + 1]`` int64: triplets of output row i are ``row_offsets[i]..[i + 1]``.
    """
    position, slots, row_offsets = by_out(kernel_map)
    return kernel_map.in_index.index_select(0, position), slots.to(torch.int32), row_offsets


def by_out(kernel_map: KernelMap) -> Layout:
    """Where in ``pairs`` the triplets of every output row are, in the order of their slots."""
    out_index, slots = kernel_map.out_index, kernel_map.slot_index.to(torch.int16)
    # stable: pairs lie by slot already, so within a row slots stay ascending
    position = torch.argsort(out_index, stable=True)
    return position.to(torch.int32), slots[position], row_starts(out_index, kernel_map.n_out)


def blocks(kernel_map: KernelMap) -> Layout:
    """Inputs by block of output rows, then slot, then row, those of one slot of one row in a bag.

    Where native points put several inputs into a slot, ``sum_j x_j W_k = (sum_j x_j) W_k``: one
    product serves them all.

    ``in_index [T]``, ``starts [B + 1]`` of the bags in it, ``out_index``, ``by_row [B]``: bags by
    row, ``row_offsets [N_out + 1]``, and on the host ``segments [S, 4]`` (block, slot, first and
    one-past-last bag) and ``shape [2]`` (slots, rows of a block).
    """
    other, volume = kernel_map.transpose(), kernel_map.volume
    if kernel_map.symmetric and other.has("blocks"):
        # (i, j, k) and (j, i, K - 1 - k) are both triplets: only the slots change their names
        *tensors, segments, shape = other.layout("blocks")
        names = torch.tensor([0, volume - 1, 0, 0])
        return *tensors, torch.where(names > 0, names - segments, segments), shape
    on_host = kernel_map.in_index.device.type == "cpu"
    rows = BLOCK_ROWS if on_host else max(1, kernel_map.n_out)
    out = kernel_map.out_index.to(torch.int64)
    place = torch.div(out, rows, rounding_mode="floor") * volume + kernel_map.slot_index
    bag = place if kernel_map.one_per_slot else place * rows + out % rows
    order = torch.argsort(bag, stable=True)  # pairs are by row within a slot
    out_index, place = kernel_map.out_index[order], place[order]
    starts = torch.arange(len(order) + 1, device=out.device)
    if not kernel_map.one_per_slot:
        _, sizes = torch.unique_consecutive(bag[order], return_counts=True)
        starts = pad(sizes.cumsum(0), (1, 0))
        out_index, place = out_index[starts[:-1]], place[starts[:-1]]
    counts = torch.bincount(place, minlength=-(-kernel_map.n_out // rows) * volume).cpu()
    ends, number = counts.cumsum(0), torch.arange(len(counts))
    fields = number // volume, number % volume, ends - counts, ends
    segments = torch.stack(fields, dim=1)[counts > 0]
    by_row = torch.argsort(out_index, stable=True).to(torch.int32)
    row_offsets = row_starts(out_index, kernel_map.n_out)
    shape = torch.tensor([volume, rows])
    return kernel_map.in_index[order], starts, out_index, by_row, row_offsets, segments, shape


def row_starts(index: Tensor, rows: int) -> Tensor:
    """Start of every row's run in a list sorted by row, from the unsorted row indices."""
    if index.device.type == "cpu":
        counts = torch.bincount(index, minlength=rows)
    else:  # bincount asks the device for its largest value
        counts = torch.zeros(rows, dtype=torch.int64, device=index.device)
        counts.index_add_(0, index, torch.ones_like(index, dtype=torch.int64))
    return pad(counts.cumsum(0), (1, 0))


def of_inputs(name: str) -> Callable[[KernelMap], Layout]:
    """A layout by output row, by input row instead; positions count in the same ``pairs``."""
    return lambda kernel_map: kernel_map.transpose().layout(name)


def identity_slot(kernel_map: KernelMap) -> Layout:
    """``[1]`` int64 on the host: the slot that takes every row to itself, -1 if none is known."""
    centre = kernel_map.volume // 2
    ends = kernel_map.offsets[centre : centre + 2]
    central = kernel_map.symmetric and kernel_map.volume % 2 == 1
    known = central and int(ends[1] - ends[0]) == kernel_map.n_in
    return (torch.tensor([centre if known else -1]),)


#: Setting of a threshold that follows the size of the kernel.
USUAL = "usual"


def is_halved(kernel_map: KernelMap) -> bool:
    """True if half of a map's slots imply the rest: a submanifold map (Spira, section 5.4)."""
    return kernel_map.symmetric and kernel_map.one_per_slot


def half_pairs(kernel_map: KernelMap) -> Layout:
    """Pairs of the slots that a weight-stationary product has to read."""
    other = kernel_map.transpose()
    if other.has("half_pairs"):
        out_index, in_index, counts = other.layout("half_pairs")  # the same read backwards
        return in_index, out_index, counts
    in_index, out_index, offsets = kernel_map.layout("pairs")
    (counts,) = kernel_map.layout("counts")
    if not is_halved(kernel_map):
        return in_index, out_index, counts
    slots = kernel_map.volume // 2
    end = int(offsets[slots])  # on the host
    return in_index[:end], out_index[:end], counts[:slots]


def slot_norms(kernel_map: KernelMap) -> tuple[int, ...]:
    """L1 norm of every slot's offset, in units of the input's voxels."""
    if kernel_map.edges.kernel is None:
        raise ValueError(
            "this kernel map does not know the offsets of its slots; build it by VoxelGrid.map_to"
        )
    return kernel_map.edges.kernel.norms


def threshold_of(word: str, norms: Sequence[int]) -> int:
    """Spira's t of a kernel, by the setting of a layout's name."""
    if word != USUAL:
        return int(word)
    return max(norms, default=0) + 1 if len(norms) <= 27 else 1


def slots_on(slots: Sequence[int], device: torch.device) -> Tensor:
    """``[S]`` int32 numbers of slots on a device; consecutive ones are counted there."""
    if slots and slots[-1] - slots[0] == len(slots) - 1:
        return torch.arange(slots[0], slots[-1] + 1, dtype=torch.int32, device=device)
    return torch.tensor(slots, dtype=torch.int32).to(device, non_blocking=True)


def hybrid(kernel_map: KernelMap, setting: str) -> Layout:
    """Slots near the centre as a table, the others as pairs (Spira, section 5.4)."""
    norms = slot_norms(kernel_map)
    threshold = threshold_of(setting, norms)
    dense = [slot for slot, norm in enumerate(norms) if norm < threshold]
    sparse = [slot for slot, norm in enumerate(norms) if norm >= threshold]
    (table,) = kernel_map.layout("table")
    near = slots_on(dense, table.device)
    columns = table.index_select(1, near) if len(dense) < kernel_map.volume else table
    if is_halved(kernel_map) and dense:  # the centre is dense, as its norm is 0
        sparse = sparse[: len(sparse) // 2]
    far = slots_on(sparse, table.device)
    if not sparse:
        none = far.new_empty(0)
        return columns, near, none, none, far.new_empty(0, dtype=torch.int64), far
    in_index, out_index, offsets = kernel_map.layout("pairs")
    (counts,) = kernel_map.layout("counts")
    ends = offsets.tolist()
    inputs, outputs = (
        torch.cat([index[ends[slot] : ends[slot + 1]] for slot in sparse])
        for index in (in_index, out_index)
    )
    return columns, near, inputs, outputs, counts.index_select(0, far), far


@dataclass(frozen=True)
class LayoutKind:
    """One layout of maps: everything that the package knows about it stands here."""

    name: str  # what a dataflow asks for; with a threshold, asked for as name:threshold
    derive: Callable[..., Layout]  # makes the tensors from whatever layout a map holds
    lists_triplets: bool = False  # making it needs the number of triplets on the host
    replaced_by_steps: bool = False  # what builders write and a map may drop once it holds steps
    has_threshold: bool = False  # whether derive takes the threshold, as the name holds it


#: Every layout, by its name.
LAYOUTS: Mapping[str, LayoutKind] = {
    kind.name: kind
    for kind in (
        LayoutKind("pairs", pairs, True),
        LayoutKind("counts", counts),
        LayoutKind("offsets", offsets, True),
        LayoutKind("table", table, replaced_by_steps=True),
        LayoutKind("masks", masks, replaced_by_steps=True),
        LayoutKind("rows_csr", rows_csr, True),
        LayoutKind("columns_csr", of_inputs("rows_csr"), True),
        LayoutKind("by_out", by_out, True),
        LayoutKind("by_in", of_inputs("by_out"), True),
        LayoutKind("identity_slot", identity_slot, True),
        LayoutKind("blocks", blocks, True),
        LayoutKind("steps", steps),
        LayoutKind("fitting_steps", fitting_steps),
        LayoutKind("half_pairs", half_pairs, True),
        LayoutKind("hybrid", hybrid, True, has_threshold=True),
    )
}


def layout_kind(name: str) -> LayoutKind:
    """The kind of a layout, by the name a dataflow asks for."""
    base, _, setting = name.partition(":")
    kind = LAYOUTS.get(base)
    # a threshold is a natural number, or usual
    if kind and (setting.isdecimal() or setting == USUAL if kind.has_threshold else base == name):
        return kind
    names = (one.name + ":<threshold>" * one.has_threshold for one in LAYOUTS.values())
    raise ValueError(f"unknown layout {name!r}; there are {', '.join(names)}")


def derived(kernel_map: KernelMap, name: str) -> Layout:
    """Tensors of a layout in torch operations; errors as of `layout_kind`."""
    kind = layout_kind(name)
    if kind.has_threshold:
        return kind.derive(kernel_map, name.partition(":")[2])
    return kind.derive(kernel_map)
