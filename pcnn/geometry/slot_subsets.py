"""Layouts of a kernel map that hold some of its slots: one half of them, or near and far apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pcnn.geometry.kernel_map import KernelMap


#: Setting of a threshold that follows the size of the kernel.
USUAL = "usual"


def is_halved(kernel_map: KernelMap) -> bool:
    """True if half of a map's slots imply the rest: a submanifold map (Spira, section 5.4).

    ``(i, j, k)`` implies ``(j, i, K - 1 - k)``, and at the central slot of an odd kernel every row
    meets itself. Where a slot holds several inputs, the centre may hold others besides.
    """
    return kernel_map.symmetric and kernel_map.one_per_slot


def half_pairs(kernel_map: KernelMap) -> tuple[Tensor, ...]:
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
            "this kernel map does not know the offsets of its slots, so they cannot be told apart "
            "by norm; build it through VoxelGrid.map_to, or use a dataflow without a threshold"
        )
    return kernel_map.edges.kernel.norms


def split_slots(norms: Sequence[int], threshold: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Slots of L1 norm below a threshold, and the others, both ascending.

    At 0 all slots are sparse; at one more than the largest norm all are dense.
    """
    dense = tuple(slot for slot, norm in enumerate(norms) if norm < threshold)
    sparse = tuple(slot for slot, norm in enumerate(norms) if norm >= threshold)
    return dense, sparse


def is_threshold(word: str) -> bool:
    """True if a setting says which slots are dense: a natural number, or `USUAL`."""
    return word.isdecimal() or word == USUAL


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


def hybrid(kernel_map: KernelMap, setting: str) -> tuple[Tensor, ...]:
    """Slots near the centre as a table, the others as pairs (Spira, section 5.4).

    Near slots are filled often and serve an output-stationary product; far ones are mostly empty
    and serve a weight-stationary one.
    """
    norms = slot_norms(kernel_map)
    dense, sparse = split_slots(norms, threshold_of(setting, norms))
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
