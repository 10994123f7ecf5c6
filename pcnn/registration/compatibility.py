"""Which matches keep each other's distance, as any two right ones do.

Two matches are compatible when their points lie as far apart in one cloud as in the other. Wrong
matches are compatible with some others by chance; right ones share many partners. So an edge of the
graph weighs as many as the partners that its two ends have in common (second order).

Source: Bai et al. 2021 (PointDSC) for lengths, Chen et al. 2022 (SC2-PCR) for the second order.
"""

from __future__ import annotations

import torch
from torch import Tensor

ENTRIES, CACHED = 1 << 25, 1 << 18  # lengths at once on a GPU, and on a CPU: as its cache holds

# largest coordinate, in shortest lengths, whose rounded square in float32, off by some 2^-21 of it,
# moves these by less than a thousandth
SMALL_CLOUD = 45.0
FEW = 128  # matches below which products of float32 are as quick as those of bfloat16
BFLOAT_COUNTS = 256  # up to here whole numbers are exact in bfloat16


def lengths(points: Tensor, others: Tensor, least: float = 0.0) -> Tensor:
    """Distances between points."""
    if points.is_cuda:  # products of float32 may use TF32
        return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")
    extent = max(float(side.abs().max()) if side.numel() else 0.0 for side in (points, others))
    dtype = torch.float32 if extent < SMALL_CLOUD * least else torch.float64
    one, other = points.to(dtype), others.to(dtype)
    squares = [side.square().sum(-1, keepdim=True) for side in (one, other)]
    units = [torch.ones_like(square) for square in squares]
    left = torch.cat([-2 * one, squares[0], units[0]], -1)  # [..., N, 5]
    right = torch.cat([other, units[1], squares[1]], -1)
    return (left @ right.mT).float().clamp_(min=0).sqrt_()


def alike(one: Tensor, other: Tensor, slack: float) -> Tensor:
    """Matches that are compatible, by lengths between their points in the source and the target.

    Points nearer than the slack on either side say nothing and are not compatible: so is no match
    with itself, and none with another of the same point.
    """
    # comparisons that write floats in place: on a CPU several times as quick as those to bools
    longer = torch.minimum(one, other).gt_(slack)
    return (one - other).abs_().lt_(slack).mul_(longer)


def most_compatible(
    source: Tensor, target: Tensor, slack: float, most: int, count: Tensor | None = None
) -> Tensor:
    """Rows of the matches with most compatible others beyond chance.

    Points amid a cloud are compatible with many others whatever they are matched with. So what
    every match would have by chance is taken off: its compatible others where these have partners
    that are not theirs. Memory grows with the number of matches.
    """
    number = len(source)
    rows = torch.arange(number, device=source.device)
    if number <= most:
        return rows
    elsewhere = target.roll(number // 2, 0)
    if count is not None:
        elsewhere = target[
            torch.where(rows < count, (rows - count // 2) % count.clamp(min=1), rows)
        ]
    size = max((ENTRIES if source.is_cuda else CACHED) // number, 1)
    degrees = []
    for some, theirs in zip(source.split(size), target.split(size), strict=True):
        one = lengths(some, source, slack)
        true, chance = (lengths(theirs, others, slack) for others in (target, elsewhere))
        degrees.append(alike(one, true, slack).sum(1) - alike(one, chance, slack).sum(1))
    degree = torch.cat(degrees)
    if count is not None:
        degree = torch.where(rows < count, degree, -float(number))
    return degree.argsort(descending=True, stable=True)[:most].sort().values


def second_order(edges: Tensor) -> Tensor:
    """Number of common partners of every two compatible matches."""
    if edges.is_cuda:
        halves = edges.half()
        return (halves @ halves).mul_(halves).float()
    if edges.shape[-1] < FEW or not torch.cpu._is_avx512_bf16_supported():
        return (edges @ edges).mul_(edges)
    halves, total = edges.bfloat16(), torch.zeros_like(edges)
    sides = (halves.split(BFLOAT_COUNTS, dim=dim) for dim in (-1, -2))
    for columns, rows in zip(*sides, strict=True):
        total += columns @ rows
    return total.mul_(edges)
