"""The layout ``blocks``: triplets by block of output rows, inputs of one slot of one row in a bag.

Where native points put several inputs into a slot, ``sum_j x_j W_k = (sum_j x_j) W_k``: one product
serves them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap

#: Output rows of a block on a CPU; elsewhere one block holds all rows.
BLOCK_ROWS = 4096


def blocks(kernel_map: KernelMap) -> tuple[Tensor, ...]:
    """Inputs by block, then slot, then row, and how each row sums its products.

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
