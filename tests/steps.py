"""The layout `steps`: what it defines, what it gathers, and room for it."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from pcnn.geometry import KernelMap, tile_steps
from pcnn.geometry.layouts import Layout
from pcnn.geometry.tile_steps import TILE_ROWS

#: (output, input, slot) of triplets.
Triplets = list[tuple[int, int, int]]


def leave_room(monkeypatch: pytest.MonkeyPatch, kernel_map: KernelMap, number: int) -> None:
    """Let maps of this size list so many steps, for the rest of a test."""
    far = 1 << 40
    sizes = kernel_map.triplets, -(-kernel_map.n_out // tile_steps.TILE_ROWS), kernel_map.volume
    monkeypatch.setattr(tile_steps, "SPARE_STEPS", -far)
    own = tile_steps.stored_steps(*sizes) + far
    monkeypatch.setattr(tile_steps, "SPARE_STEPS", number - own)
    assert tile_steps.stored_steps(*sizes) == number


def defined(layout: Layout) -> Layout:
    """The tensors without what lies between the steps of tiles."""
    out, begin, end, slot, rows, *ranges = layout
    counts = (end - begin).long()
    first = torch.repeat_interleave(begin.long() - (counts.cumsum(0) - counts), counts)
    listed = first + torch.arange(len(first), device=slot.device)
    return out, begin, end, slot[listed], rows[listed], *ranges


def gathered(view: KernelMap) -> Tensor:
    """``[T, 3]`` int64 (output row, slot, input row), sorted, of the steps of a side."""
    layout = view.layout("steps")
    if len(layout) > 5:
        inputs, outputs, sizes = tile_steps.pairs_of_steps(layout)
        slots = torch.arange(view.volume, device=sizes.device).repeat_interleave(sizes)
    else:
        table = tile_steps.table_of_steps(layout, view.n_out, view.volume)
        outputs, slots = (table >= 0).nonzero(as_tuple=True)
        inputs = table[outputs, slots]
    found = torch.stack([one.long().cpu() for one in (outputs, slots, inputs)], dim=1)
    return torch.unique(found, dim=0) if view.one_per_slot else found[_order(found)]


def check_steps(view: KernelMap, layout: Layout, name: str = "steps") -> Triplets:
    """Triplets that tiles gather, and what steps promise besides."""
    out, begin, end, slot, rows, *ranges = (tensor.cpu() for tensor in layout)
    sections = len(out) // max(1, -(-view.n_out // TILE_ROWS))
    assert all(tensor.dtype == torch.int32 for tensor in layout)
    placed = out[out >= 0].sort().values
    if sections == 1 or name == "steps":
        assert placed.tolist() == list(range(view.n_out))
    assert len(ranges) == (0 if view.one_per_slot else 2)
    lengths, found = end - begin, []
    for tile, (first, last) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        stepped: Triplets = []
        assert sections > 1 or (slot[first:last].diff() >= 0).all() or view.symmetric
        for own, inputs in zip(slot[first:last].tolist(), rows[first:last], strict=True):
            assert inputs.max() >= 0
            assert (inputs[out[tile] < 0] == -1).all()
            gathered = zip(out[tile].tolist(), inputs.tolist(), strict=True)
            stepped += [(i, j, own) for i, j in gathered if j >= 0]
        ranged: Triplets = []
        if ranges:
            for place, row in enumerate(out[tile].tolist()):
                for own, (a, b) in enumerate(pairwise(ranges[0][tile, :, place].tolist())):
                    ranged += [(row, j, own) for j in ranges[1][a:b].tolist()]
            lengths[tile] = _fullest(ranged, view.volume)
            assert first < 0 or sorted(stepped) == sorted(ranged)
        found += ranged or stepped
    assert (lengths.diff() <= 0).all()
    return found


def _fullest(ranged: Triplets, volume: int) -> int:
    """Steps of a tile: over its slots, inputs of the row that has most."""
    counts: dict[tuple[int, int], int] = {}
    for row, _, own in ranged:
        counts[own, row] = counts.get((own, row), 0) + 1
    return sum(
        max((n for (k, _), n in counts.items() if k == own), default=0) for own in range(volume)
    )


def _order(rows: Tensor) -> Tensor:
    order = torch.arange(len(rows))
    for column in (2, 1, 0):
        order = order[torch.argsort(rows[order, column], stable=True)]
    return order
