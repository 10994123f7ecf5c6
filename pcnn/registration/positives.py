"""Which points of two clouds are the same place under the true transform."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.maps.point_cells import checked_reach
from pcnn.registration.nearest import SortedCells


def positive_pairs(
    source: Tensor,  # [N, 3] places of the sources' rows [m], cloud after cloud
    source_offsets: Tensor,  # [B + 1] int64, rows of every source
    target: Tensor,  # [M, 3] places of the targets' rows [m]
    target_offsets: Tensor,  # [B + 1] int64
    transforms: Tensor,  # [B, 4, 4], source to target
    radius: float,  # [m]
) -> tuple[Tensor, Tensor]:
    """All pairs of rows of the same pair of clouds within a radius, exact and inclusive."""
    reach = checked_reach(radius)
    if len(source) == 0 or len(target) == 0:
        pairs = torch.zeros(0, 2, dtype=torch.int64, device=source.device)
        return pairs, torch.zeros_like(source_offsets)
    source_pair = _pair_of_rows(source_offsets, len(source))
    target_pair = _pair_of_rows(target_offsets, len(target))
    # about one point of each target: what is left of the coordinates is small
    middle = target[target_offsets[:-1].clamp(max=len(target) - 1)].double()  # [B, 3]
    placed = transforms.double()[source_pair]  # [N, 4, 4]
    # sums of products by hand: a product of matrices for every point is slow
    moved = (placed[:, :3, :3] * source.double()[:, None]).sum(2) + placed[:, :3, 3]
    moved = moved - middle[source_pair]
    there = target.double() - middle[target_pair]
    moved, there = moved.float(), there.float()
    cells = SortedCells(there, reach, target_pair, len(transforms))
    pairs = torch.stack(cells.pairs(moved, source_pair), 1)
    return pairs, torch.searchsorted(pairs[:, 0].contiguous(), source_offsets)


def _pair_of_rows(offsets: Tensor, rows: int) -> Tensor:
    """Pair of clouds [N] int64 that every row belongs to."""
    return torch.searchsorted(
        offsets[1:].contiguous(), torch.arange(rows, device=offsets.device), right=True
    )
