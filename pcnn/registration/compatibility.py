"""Which matches keep each other's distance, as any two right ones do.

Two matches are compatible when their points lie as far apart in one cloud as in the other. Wrong
matches are compatible with some others by chance; right ones share many partners. So an edge of the
graph weighs as many as the partners that its two ends have in common (second order).

Source: Bai et al. 2021 (PointDSC) for lengths, Chen et al. 2022 (SC2-PCR) for the second order.
"""

from __future__ import annotations

import torch
from torch import Tensor

ENTRIES, CACHED = 1 << 24, 1 << 18  # lengths at once on a GPU, and on a CPU: as its cache holds


def compatible(
    source: Tensor, target: Tensor, others: tuple[Tensor, Tensor], slack: float
) -> Tensor:
    """Matches whose points lie as far apart in the source as in the target.

    Pairs nearer than the slack on either side say nothing and are not compatible: so is no match
    with itself, and none with another of the same point.

    Args:
        source: [..., N, 3] float32 points of the matches.
        target: [..., N, 3] their partners.
        others: the same of the matches they are compared with, [..., K, 3] each.
        slack: largest difference of lengths [m].

    Returns:
        [..., N, K] bool.
    """
    return alike(lengths(source, others[0]), lengths(target, others[1]), slack)


def lengths(points: Tensor, others: Tensor) -> Tensor:
    """Distances [..., N, K] between points [..., N, 3] and others [..., K, 3], to the digit."""
    # products lose digits of small lengths, and use TF32
    return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")


def alike(one: Tensor, other: Tensor, slack: float) -> Tensor:
    """Lengths that differ by less than the slack and are longer than it: bool of their shape."""
    return ((one - other).abs() < slack) & (torch.minimum(one, other) > slack)


def most_compatible(source: Tensor, target: Tensor, slack: float, most: int) -> Tensor:
    """Rows of the matches with most compatible others beyond chance.

    Points amid a cloud are compatible with many others whatever they are matched with. So what
    every match would have by chance is taken off: its compatible others where these have partners
    that are not theirs. Memory grows with the number of matches.

    Args:
        source: [M, 3] float32 points of the matches.
        target: [M, 3] their partners.
        slack: as in `compatible` [m].
        most: rows at most.

    Returns:
        [min(M, most)] int64, rising; of equal ones those that come first.
    """
    number = len(source)
    if number <= most:
        return torch.arange(number, device=source.device)
    size = max((ENTRIES if source.is_cuda else CACHED) // number, 1)
    degrees = []
    for some, theirs in zip(source.split(size), target.split(size), strict=True):
        one, other = lengths(some, source), lengths(theirs, target)
        elsewhere = other.roll(number // 2, 1)
        degrees.append(alike(one, other, slack).sum(1) - alike(one, elsewhere, slack).sum(1))
    first = torch.cat(degrees).argsort(descending=True, stable=True)[:most]
    return first.sort().values


def second_order(first: Tensor) -> Tensor:
    """Number of common partners of every two compatible matches.

    Args:
        first: [..., N, N] bool, symmetric, N at most 2048: counts are exact in half precision.

    Returns:
        [..., N, N] float32, whole numbers; 0 where two matches are not compatible.
    """
    edges = first.to(torch.float16 if first.is_cuda else torch.float32)
    return (edges @ edges).mul_(edges).float()
