"""From the triplets of each slot to a kernel map."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.geometry import KernelMap, VoxelGrid


def assemble_pairs(
    slots: Sequence[tuple[Tensor, Tensor]],
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
