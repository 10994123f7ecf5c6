"""Searches in torch on any device: brute force, and binary search of sorted keys."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.sites import find_keys

Pairs = tuple[Tensor, Tensor]

#: Comparisons, or queries, of one step, to bound memory.
CHUNK = 1 << 23


def assemble_pairs(
    slots: Sequence[Pairs],
    source: VoxelGrid,
    target: VoxelGrid,
    symmetric: bool = False,
) -> KernelMap:
    """Join the pairs of all slots into a voxel kernel map."""
    offsets = torch.zeros(len(slots) + 1, dtype=torch.int64)
    counts = torch.tensor([index.shape[0] for index, _ in slots], dtype=torch.int64)
    torch.cumsum(counts, 0, out=offsets[1:])
    in_index = torch.cat([index for index, _ in slots]).to(torch.int32)
    out_index = torch.cat([index for _, index in slots]).to(torch.int32)
    return KernelMap.from_pairs(
        in_index, out_index, offsets, source.rows, target.rows, symmetric=symmetric
    )


def sort_by_slot(
    slot: Tensor, in_index: Tensor, out_index: Tensor, volume: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Bring triplets into the order of `KernelMap.from_pairs`; the host waits for their numbers."""
    order = torch.argsort(torch.where(slot < 0, volume, slot), stable=True)
    counts = torch.zeros(volume + 1, dtype=torch.int64, device=slot.device)
    counts.index_add_(0, slot + 1, torch.ones_like(slot, dtype=torch.int64))
    offsets = torch.zeros(volume + 1, dtype=torch.int64)
    torch.cumsum(counts[1:].cpu(), 0, out=offsets[1:])
    order = order[: int(offsets[-1])]
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
        symmetric = kernel.is_symmetric and source is target
        return assemble_pairs(found, source, target, symmetric)


@dataclass(frozen=True)
class SortedSearch:
    """Search ``key(out) + delta(slot)`` among the input keys, O(K N log N), any torch device."""

    name: str = "sorted_search"

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by sorted search; see `Builder.build`."""
        symmetric = kernel.is_symmetric and source is target
        if source.rows == 0 or target.rows == 0:
            empty = source.keys.new_zeros(0)
            return assemble_pairs([(empty, empty)] * kernel.volume, source, target, symmetric)
        origin, *steps = kernel.key_steps(source.tensor_stride)
        slots = itertools.product(*map(range, kernel.size))
        deltas = [origin + sum(map(operator.mul, slot, steps)) for slot in slots]
        if symmetric:
            found = _search(source.keys, source.keys, deltas[: kernel.volume // 2])
            rows = torch.arange(source.rows, device=source.device)
            # an even number of slots has none at the centre
            centre = [(rows, rows)] if kernel.volume % 2 else []
            # slot K-1-k of a symmetric map is slot k with input and output exchanged
            mirrored = [(out_index, in_index) for in_index, out_index in reversed(found)]
            return assemble_pairs([*found, *centre, *mirrored], source, target, True)
        return assemble_pairs(_search(source.keys, target.keys, deltas), source, target)


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
