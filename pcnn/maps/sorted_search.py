"""Binary search of packed neighbour keys in the sorted keys of the input sites, in torch.

The plain form of Minuet's and Spira's idea: outputs are sorted, so their keys plus a constant are a
sorted list of queries. Two shortcuts keep it quick on a CPU. Half of a symmetric map is searched
and the other half mirrored (Spira 5.4). A kernel that tiles space (size = stride) needs one search
per input instead of K per output.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.find_sites import find_keys
from pcnn.maps.assemble import assemble_pairs

Pairs = tuple[Tensor, Tensor]

#: Queries searched at once, to bound memory.
CHUNK = 1 << 23


@dataclass(frozen=True)
class SortedSearch:
    """Search ``key(out) + delta(slot)`` among the input keys, O(K N log N), any torch device."""

    name: str = "sorted_search"

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by sorted search; see `MapBuilder.build`."""
        symmetric = kernel.is_symmetric and source is target
        if source.rows == 0 or target.rows == 0:
            empty = source.keys.new_zeros(0)
            return assemble_pairs([(empty, empty)] * kernel.volume, source, target, symmetric)
        if kernel.is_disjoint:
            return _parents(source, target, kernel)
        deltas = [_delta(source, offset) for offset in kernel.offsets]
        if symmetric:
            found = _search(source.keys, source.keys, deltas[: kernel.volume // 2])
            rows = torch.arange(source.rows, device=source.device)
            # an even number of slots has none at the centre
            centre = [(rows, rows)] if kernel.volume % 2 else []
            # slot K-1-k of a symmetric map is slot k with input and output exchanged
            mirrored = [(out_index, in_index) for in_index, out_index in reversed(found)]
            return assemble_pairs([*found, *centre, *mirrored], source, target, True)
        return assemble_pairs(_search(source.keys, target.keys, deltas), source, target)


def _delta(source: VoxelGrid, offset: tuple[int, int, int]) -> int:
    scaled = [value * step for value, step in zip(offset, source.tensor_stride, strict=True)]
    return source.key_format.delta(scaled)


def _search(source_keys: Tensor, target_keys: Tensor, deltas: list[int]) -> list[Pairs]:
    """Pairs (in_index, out_index) of every slot: ``source_keys[j] == target_keys[i] + delta``."""
    found: list[Pairs] = []
    slots = max(1, CHUNK // target_keys.shape[0])
    for start in range(0, len(deltas), slots):
        shifts = torch.tensor(deltas[start : start + slots], device=target_keys.device)
        queries = target_keys[None, :] + shifts[:, None]  # [slots, N_out]
        position, hit = find_keys(source_keys, queries)
        slot, out_index = hit.nonzero(as_tuple=True)
        in_index = position[hit]
        counts = torch.bincount(slot, minlength=len(shifts)).tolist()
        found += zip(in_index.split(counts), out_index.split(counts), strict=True)
    return found


def _parents(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
    """Map of a kernel that tiles space: the one parent and the one slot of every input."""
    coords = source.coords.to(torch.int64)
    above = target.inverse if source.is_below(target, kernel) else None
    fine = torch.tensor(source.tensor_stride, device=source.device)
    step = torch.tensor(target.tensor_stride, device=source.device)
    parent = torch.div(coords[:, 1:], step, rounding_mode="floor") * step
    place = torch.div(coords[:, 1:] - parent, fine, rounding_mode="floor")  # [N_in, 3]
    _, size_y, size_z = kernel.size
    slot = (place[:, 0] * size_y + place[:, 1]) * size_z + place[:, 2]
    if above is not None:
        row, known = above, torch.ones_like(slot, dtype=torch.bool)
    else:
        keys = source.key_format.pack(torch.cat([coords[:, :1], parent], dim=1))
        row, known = find_keys(target.keys, keys)  # given sites may lack a parent
    # one stable sort puts pairs in slot order; within a slot inputs ascend, and so do parents
    order = torch.argsort(torch.where(known, slot, kernel.volume), stable=True)
    counts = torch.bincount(slot[known], minlength=kernel.volume).tolist()
    order = order[: sum(counts)]
    pairs = list(zip(order.split(counts), row[order].split(counts), strict=True))
    return assemble_pairs(pairs, source, target)
