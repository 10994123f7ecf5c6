"""Layouts by block of output rows: triplets one by one, or summed by slot first (`bags`).

Where native points put several inputs into a slot, ``sum_j x_j W_k = (sum_j x_j) W_k``: one product
serves them all. A bag is the inputs of one slot of one output row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

Layout = tuple[Tensor, ...]

#: Output rows of a block on a CPU; elsewhere one block holds all rows.
BLOCK_ROWS = 4096


def blocks(kernel_map: KernelMap) -> Layout:
    """Triplets by block of output rows, then slot, and how each row sums its products."""
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
    return in_index, out_index, by_row, row_starts(out_index, n_out), segments, shape


def bags(kernel_map: KernelMap) -> Layout:
    """Inputs by block of output rows, then slot, then row:
    those of one slot of one row are a bag.
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
    starts = row_starts(out_index, kernel_map.n_out)
    return in_index, out_index, by_row, starts, fields[ends > offsets[:-1]], shape


def mirrored_blocks(layout: Layout) -> Layout:
    """Blocks, or bags, of the transpose of a symmetric map, from the map's own.

    ``(i, j, k)`` and ``(j, i, K - 1 - k)`` are both triplets, so only the slots change their names.
    """
    *tensors, segments, shape = layout
    mirrored = segments.clone()
    mirrored[:, 1] = shape[0] - 1 - segments[:, 1]
    return *tensors, mirrored, shape


def bags_of(kernel_map: KernelMap, rows: int) -> Layout:
    """Layout ``bags`` from a map's pairs; see `bags`."""
    volume, out = kernel_map.volume, kernel_map.out_index.to(torch.int64)
    block = torch.div(out, rows, rounding_mode="floor")
    code = (block * volume + kernel_map.slot_index) * rows + out % rows
    order = torch.argsort(code, stable=True)
    bags, sizes = torch.unique_consecutive(code[order], return_counts=True)
    starts = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    place = torch.div(bags, rows, rounding_mode="floor")  # block-major, slot-minor
    out_index = torch.div(place, volume, rounding_mode="floor") * rows + bags % rows
    by_row = torch.argsort(out_index, stable=True).to(torch.int32)
    segments, counts = torch.unique_consecutive(place.cpu(), return_counts=True)
    ends = counts.cumsum(0)
    fields = torch.div(segments, volume, rounding_mode="floor"), segments % volume
    segments = torch.stack((*fields, ends - counts, ends), dim=1)
    row_ends = torch.searchsorted(
        out_index.sort().values, torch.arange(kernel_map.n_out + 1, device=out.device)
    )
    shape = torch.tensor([volume, rows])
    in_index = kernel_map.in_index[order]
    return in_index, starts, out_index.to(torch.int32), by_row, row_ends, segments, shape


def counts_of_bags(kernel_map: KernelMap) -> Layout:
    """Layout ``counts`` of either side of a map that was made from its bags."""
    _, starts, *_, segments, shape = _stored(kernel_map)
    counts = torch.zeros(int(shape[0]), dtype=torch.int64)
    _, slot, first, end = segments.unbind(1)
    return (counts.index_add_(0, slot, starts[end] - starts[first]),)


def pairs_of_bags(kernel_map: KernelMap) -> Layout:
    """Layout ``pairs`` of either side of a map that was made from its bags."""
    in_index, starts, out_index, _, _, segments, _ = _stored(kernel_map)
    _, slot, first, end = segments.unbind(1)
    slots = torch.repeat_interleave(slot, starts[end] - starts[first])
    order = torch.argsort(slots, stable=True)
    outputs = torch.repeat_interleave(out_index, starts.diff())[order]
    inputs = in_index[order]
    (counts,) = counts_of_bags(kernel_map)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    sides = (outputs, inputs) if kernel_map.flipped else (inputs, outputs)
    return *sides, offsets


def _stored(kernel_map: KernelMap) -> Layout:
    return kernel_map.edges.layouts["bags", False]


def row_starts(index: Tensor, rows: int) -> Tensor:
    """Start of every row's run in a list sorted by row, from the unsorted row indices."""
    if index.device.type == "cpu":
        counts = torch.bincount(index, minlength=rows)
    else:  # bincount asks the device for its largest value
        counts = torch.zeros(rows, dtype=torch.int64, device=index.device)
        counts.index_add_(0, index, torch.ones_like(index, dtype=torch.int64))
    offsets = counts.new_zeros(rows + 1)
    torch.cumsum(counts, 0, out=offsets[1:])
    return offsets
