"""The layout `steps`: what it defines, what it gathers, and room for it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pcnn.geometry import KernelMap, steps
from pcnn.geometry.layouts import Layout


def leave_room(monkeypatch: pytest.MonkeyPatch, kernel_map: KernelMap, number: int) -> None:
    """Let maps of this size list so many steps, for the rest of a test."""
    far = 1 << 40
    sizes = kernel_map.triplets, -(-kernel_map.n_out // steps.TILE_ROWS), kernel_map.volume
    monkeypatch.setattr(steps, "SPARE_STEPS", -far)
    own = steps.stored_steps(*sizes) + far
    monkeypatch.setattr(steps, "SPARE_STEPS", number - own)
    assert steps.stored_steps(*sizes) == number


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
        inputs, outputs, sizes = steps.pairs_of_steps(layout)
        slots = torch.arange(view.volume, device=sizes.device).repeat_interleave(sizes)
    else:
        table = steps.table_of_steps(layout, view.n_out, view.volume)
        outputs, slots = (table >= 0).nonzero(as_tuple=True)
        inputs = table[outputs, slots]
    found = torch.stack([one.long().cpu() for one in (outputs, slots, inputs)], dim=1)
    return torch.unique(found, dim=0) if view.one_per_slot else found[_order(found)]


def _order(rows: Tensor) -> Tensor:
    order = torch.arange(len(rows))
    for column in (2, 1, 0):
        order = order[torch.argsort(rows[order, column], stable=True)]
    return order
