"""Hypotheses from groups of matches that keep each other's distance, as any two right ones do.

Right matches share many compatible partners, so an edge weighs as many as its two ends have in
common (second order). A leader has much such support, and few that have more lead nearly the same
group of neighbours: so poses with little support have leaders, too. The leading eigenvector of the
group's own graph weighs its matches, and a weighted fit makes a hypothesis.

Source: Bai et al. 2021 (PointDSC) for lengths, Chen et al. 2022 (SC2-PCR) for the second order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.rigid_fit import fitted_rows

ENTRIES, CACHED = 1 << 25, 1 << 18  # lengths at once on a GPU, and on a CPU: as its cache holds

# largest coordinate, in shortest lengths, whose rounded square in float32, off by some 2^-21 of it,
# moves these by less than a thousandth
SMALL_CLOUD = 45.0
FEW = 128  # matches below which products of float32 are as quick as those of bfloat16
BFLOAT_COUNTS = 256  # up to here whole numbers are exact in bfloat16


SLACK = 1.5  # distances: largest difference of two lengths of compatible matches
LEADERS = 128  # matches that lead a group at most
MEMBERS = 20  # matches of a group at most, its leader included
SAME_GROUP = 0.6  # of a leader's largest support, from which on a match would lead its group
POWER_STEPS = 10  # towards the leading eigenvector


def lengths(points: Tensor, others: Tensor, least: float = 0.0) -> Tensor:
    """Distances between points."""
    dtype = torch.float64  # products of float32 may use TF32 on a GPU
    if not points.is_cuda:
        extent = max(float(side.abs().max()) if side.numel() else 0.0 for side in (points, others))
        dtype = torch.float32 if extent < SMALL_CLOUD * least else dtype
    one, other = points.to(dtype), others.to(dtype)
    squares = [side.square().sum(-1, keepdim=True) for side in (one, other)]
    units = [torch.ones_like(square) for square in squares]
    left = torch.cat([-2 * one, squares[0], units[0]], -1)  # [..., N, 5]
    right = torch.cat([other, units[1], squares[1]], -1)
    return (left @ right.mT).float().clamp_(min=0).sqrt_()


def alike(one: Tensor, other: Tensor, slack: float) -> Tensor:
    """Compatible matches, by lengths on both sides; points nearer than the slack say nothing."""
    # comparisons that write floats in place: on a CPU several times as quick as those to bools
    longer = torch.minimum(one, other).gt_(slack)
    return (one - other).abs_().lt_(slack).mul_(longer)


def most_compatible(
    source: Tensor, target: Tensor, slack: float, most: int, count: Tensor | None = None
) -> Tensor:
    """Rows of the matches with most compatible others, less those with partners not their own."""
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


def hypotheses(source: Tensor, target: Tensor, distance: float) -> tuple[Tensor, Tensor]:
    """Transforms of the groups of pairs."""
    slack = SLACK * distance
    both = torch.stack([source, target])
    one, other = lengths(both, both, slack)  # [B, N, N]
    support = second_order(alike(one, other, slack))
    rows = leaders(support, LEADERS)  # [B, L]
    groups, member = _groups(support, rows, MEMBERS)  # [B, L, G]
    weight = _weights(one.sub_(other), groups, member, slack)  # [B L, G]
    places = groups.flatten(1)[..., None].expand(-1, -1, 3)
    one, other = (
        side.gather(1, places).reshape(-1, groups.shape[2], 3) for side in (source, target)
    )
    large = (weight > 0).sum(1) >= 3
    return fitted_rows(one, other, weight).unflatten(0, rows.shape), large.view_as(rows)


def leaders(support: Tensor, most: int) -> Tensor:
    """Rows [B, min(N, most)], rising, of the matches that lead groups."""
    number = support.shape[-1]
    if number <= most:
        return torch.arange(number, device=support.device).expand(len(support), -1)
    largest = support.amax(2)  # [B, N]
    followed = (support - SAME_GROUP * largest[:, :, None]).ge_(0)
    followed *= (largest[:, :, None] - largest[:, None, :]).gt_(0)
    worth = largest / (followed.sum(1) + 2)
    return worth.argsort(dim=1, descending=True, stable=True)[:, :most].sort(1).values


def _groups(support: Tensor, rows: Tensor, members: int) -> tuple[Tensor, Tensor]:
    """Rows [B, L, G] of leaders and their neighbours with most support; which of them exist."""
    number = support.shape[-1]
    # whole keys, unique in a row: ties fall alike on every device; 2048² are exact in float32
    order = torch.arange(number - 1, -1, -1, device=support.device, dtype=torch.float32)
    own = support.gather(1, rows[..., None].expand(-1, -1, number))  # [B, L, N]
    keys = own.mul_(number).add_(order)
    best = keys.topk(min(members, number) - 1, dim=-1, sorted=False).values.long()
    others, found = number - 1 - best % number, best >= number
    there = torch.cat([found.any(-1, keepdim=True), found], -1)
    return torch.cat([rows[..., None], others], -1), there


def _weights(gap: Tensor, groups: Tensor, member: Tensor, slack: float) -> Tensor:
    """Weights [B L, G] of the matches of groups: the leading eigenvector of their own graphs."""
    # gap: differences of lengths of all matches, [B, N, N]; groups and members are [B, L, G]
    number, size = gap.shape[-1], groups.shape[-1]
    first = torch.arange(len(gap), device=gap.device)[:, None, None] * number
    places = (groups + first)[..., :, None] * number + groups[..., None, :]  # [B, L, G, G]
    own = gap.flatten().index_select(0, places.flatten()).view(-1, size, size)  # [B L, G, G]
    member = member.flatten(0, 1).float()
    near = own.div_(slack).square_().neg_().add_(1).clamp_(min=0)
    near *= member[:, :, None] * member[:, None, :]
    hard = (near > 0).float()
    graph = near.mul_(hard @ hard).div_(size)  # scaled: neither large nor small after ten steps
    vector = member[:, :, None]
    for _ in range(POWER_STEPS):
        vector = graph @ vector
    return (vector / vector.amax(1, keepdim=True).clamp(min=1e-30)).squeeze(2)
