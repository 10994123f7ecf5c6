"""Binary search of packed neighbour keys in the sorted keys of the input sites, in torch.

The plain form of Minuet's and Spira's idea: outputs are sorted, so their keys plus a constant are a
sorted list of queries. Half of a symmetric map is searched and the other half mirrored (Spira 5.4).
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
