"""Hand-made batches for losses of descriptors."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


def pair_batch(
    sources: list[Tensor], targets: list[Tensor], radius: float, voxel_size: float = 1.0
) -> Any:
    """A batch of pairs of clouds [N, 3], [M, 3] that lie where they belong, positives by loops."""
    positives, offsets, first = [], [0], [0, 0]
    for source, target in zip(sources, targets, strict=True):
        for i, p in enumerate(source):
            for j, q in enumerate(target):
                if (p - q).norm() <= radius:
                    positives.append([first[0] + i, first[1] + j])
        offsets.append(len(positives))
        first = [first[0] + len(source), first[1] + len(target)]
    return SimpleNamespace(
        positives=torch.tensor(positives, dtype=torch.int64).reshape(-1, 2),
        positive_offsets=torch.tensor(offsets),
        source_places=torch.cat(sources),
        target_places=torch.cat(targets),
        source_offsets=torch.tensor([0, *map(len, sources)]).cumsum(0),
        target_offsets=torch.tensor([0, *map(len, targets)]).cumsum(0),
        transforms=torch.eye(4, dtype=torch.float64).repeat(len(sources), 1, 1),
        voxel_size=voxel_size,
        batch_size=len(sources),
    )


def unit_rows(n: int, channels: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random features [n, C] of unit length that ask for gradients."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, channels, generator=generator, dtype=dtype)
    return torch.nn.functional.normalize(rows, dim=1).requires_grad_()
