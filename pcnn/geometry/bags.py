"""Inputs of every slot of every output row, summed before they are multiplied: layout ``bags``.

Where native points put several inputs into a slot, ``sum_j x_j W_k = (sum_j x_j) W_k``: one product
serves them all. A bag is the inputs of one slot of one output row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap


def bags_of(kernel_map: KernelMap, rows: int) -> tuple[Tensor, ...]:
    """Layout ``bags`` from a map's pairs; see `pcnn.geometry.layouts.bags`.

    Args:
        kernel_map: the map.
        rows: output rows of a block.
    """
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


def counts_of_bags(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    """Layout ``counts`` of either side of a map that was made from its bags."""
    _, starts, *_, segments, shape = _stored(kernel_map)
    counts = torch.zeros(int(shape[0]), dtype=torch.int64)
    _, slot, first, end = segments.unbind(1)
    return (counts.index_add_(0, slot, starts[end] - starts[first]),)


def pairs_of_bags(kernel_map: KernelMap) -> tuple[Tensor, ...]:
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


def _stored(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    return kernel_map.edges.layouts["bags", False]
