"""Searches in torch on any device: brute force, and binary search of sorted keys."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.layouts import row_starts
from pcnn.geometry.voxel_grid import find_keys

Pairs = tuple[Tensor, Tensor]

#: Comparisons, or queries, of one step, to bound memory.
CHUNK = 1 << 23


def _joined(
    slots: Sequence[Pairs], source: VoxelGrid, target: VoxelGrid, kernel: Kernel
) -> KernelMap:
    """The kernel map of the pairs of all slots."""
    offsets = torch.tensor([0, *(len(index) for index, _ in slots)]).cumsum(0)
    in_index, out_index = (torch.cat(rows).to(torch.int32) for rows in zip(*slots, strict=True))
    symmetric = source is target and kernel.is_symmetric
    return KernelMap.from_pairs(
        in_index, out_index, offsets, source.rows, target.rows, symmetric=symmetric
    )


def sort_by_slot(
    slot: Tensor, in_index: Tensor, out_index: Tensor, volume: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Bring triplets into the order of `KernelMap.from_pairs`; the host waits for their numbers."""
    order = torch.argsort(slot, stable=True)
    offsets = row_starts(slot, volume).cpu()
    return in_index[order].to(torch.int32), out_index[order].to(torch.int32), offsets


@dataclass(frozen=True)
class BruteForce:
    """Compare coordinates directly, O(N_in N_out K) integer comparisons."""

    name: str = "brute_force"

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by exhaustive comparison; see `Builder.build`."""
        inputs, outputs = source.coords.to(torch.int64), target.coords.to(torch.int64)  # [N, 4]
        step = torch.tensor((1, *source.tensor_stride), device=source.device)
        rows = max(1, CHUNK // max(1, source.rows))
        found = []
        for offset in kernel.offsets:
            shift = torch.tensor((0, *offset), device=source.device) * step
            parts = []
            for number, own in enumerate(outputs.split(rows)):
                equal = ((own + shift)[:, None, :] == inputs).all(-1)
                i, j = equal.nonzero(as_tuple=True)
                parts.append((j, i + number * rows))
            in_index, out_index = map(torch.cat, zip(*parts, strict=True))
            found.append((in_index, out_index))
        return _joined(found, source, target, kernel)


@dataclass(frozen=True)
class SortedSearch:
    """Search ``key(out) + delta(slot)`` among the input keys, O(K N log N), any torch device."""

    name: str = "sorted_search"

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by sorted search; see `Builder.build`."""
        if source.rows == 0 or target.rows == 0:
            empty = source.keys.new_zeros(0)
            return _joined([(empty, empty)] * kernel.volume, source, target, kernel)
        origin, *steps = kernel.key_steps(source.tensor_stride)
        slots = itertools.product(*map(range, kernel.size))
        deltas = [origin + sum(map(operator.mul, slot, steps)) for slot in slots]
        if not (kernel.is_symmetric and source is target):
            return _joined(_search(source.keys, target.keys, deltas), source, target, kernel)
        found = _search(source.keys, source.keys, deltas[: kernel.volume // 2])
        rows = torch.arange(source.rows, device=source.device)
        # an even number of slots has none at the centre
        centre = [(rows, rows)] if kernel.volume % 2 else []
        # slot K-1-k of a symmetric map is slot k with input and output exchanged
        mirrored = [(out_index, in_index) for in_index, out_index in reversed(found)]
        return _joined([*found, *centre, *mirrored], source, target, kernel)


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
