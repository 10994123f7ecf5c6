"""Hypotheses from groups of compatible matches.

Some matches lead a group: themselves and the neighbours whose edges to them have most second-order
support. A leader has much support, and few that have more lead nearly the same group: so poses
with little support have leaders, too. The leading eigenvector of the group's own graph weighs its
matches, and a weighted fit makes a hypothesis. All sizes are fixed, and nothing waits for a device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.compatibility import alike, lengths, second_order
from pcnn.registration.rigid_fit import fitted_rows

SLACK = 1.5  # distances: largest difference of two lengths of compatible matches
LEADERS = 128  # matches that lead a group at most
MEMBERS = 20  # matches of a group at most, its leader included
SAME_GROUP = 0.6  # of a leader's largest support, from which on a match would lead its group
POWER_STEPS = 10  # towards the leading eigenvector


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
    """Rows [B, min(N, most)], rising, of the matches that lead groups.

    They are those with the largest support, less where others that have more lead the same group:
    divided by one more than half of their number.
    """
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
