"""Transforms from groups of matches that all keep each other's distance.

Every match of a compatibility graph leads a group: itself and the neighbours whose edges to it have
most second-order support. In a group right matches form a clique, or nearly one; the leading
eigenvector of its own graph weighs them, and a weighted fit makes a hypothesis. No draws: groups
are found where RANSAC would have to hit three right matches by chance.

Ideas: SC2-PCR (Chen et al. 2022) for groups, MAC (Zhang et al. 2023) for hypotheses from cliques,
Leordeanu and Hebert 2005 for the eigenvector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pcnn.registration.agreement import Agreement
from pcnn.registration.compatibility import alike, lengths, most_compatible, second_order
from pcnn.registration.ransac import Candidates, Solution, checked_matches
from pcnn.registration.rigid_fit import fitted
from pcnn.registration.settings import CliqueSettings
from pcnn.registration.transforms import transform_points

ENTRIES = 1 << 24  # edges of graphs at once
POWER_STEPS, APART_STEPS = 10, 5  # towards the leading eigenvector; between two normalisations
REFITS = 5
GAIN = 1e-3  # of support, below which another fit is not worth its time
COMPARED, PLACES = 200, 50  # hypotheses, and matches by which poses are told apart
APART = 4.0  # distances: root mean square motion of the matches between two poses


class _Search(NamedTuple):
    """The matches of one pair about their means, and the rows of its graph."""

    source: Tensor  # [M, 3] float32
    target: Tensor  # [M, 3]
    middle_source: Tensor  # [3] float64
    middle_target: Tensor  # [3]
    rows: Tensor  # [N]


def cliques(
    source: Tensor, target: Tensor, settings: CliqueSettings, refine: bool = True
) -> Solution:
    """Estimate the transform of one pair; see `cliques_batch`."""
    return cliques_batch([source], [target], settings, refine)[0]


def cliques_batch(
    sources: Sequence[Tensor],
    targets: Sequence[Tensor],
    settings: CliqueSettings,
    refine: bool = True,
) -> list[Solution]:
    """Estimate the transforms of several pairs; each comes out as it would alone.

    Nothing is drawn: equal matches give equal results on the same device. Memory grows with the
    number of matches, not with its square.

    Args:
        sources: [M_b, 3] points of the matches in every source [m], on one device.
        targets: [M_b, 3] their partners.
        settings: of groups and what agrees.
        refine: fit the best hypotheses again to what agrees with them, and take the best of these.

    Returns:
        One solution a pair, with other poses that have support; its transform is None with fewer
        than three matches, and where no three agree with a hypothesis.

    Raises:
        ValueError: shapes differ, or coordinates are not finite.
    """
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources for {len(targets)} targets")
    searches = []
    for source, target in zip(sources, targets, strict=True):
        checked_matches(source, target)
        middles = source.double().mean(0), target.double().mean(0)
        about = [
            (side.double() - middle).float()
            for side, middle in zip((source, target), middles, strict=True)
        ]
        rows = most_compatible(about[0], about[1], settings.distance, settings.most)
        searches.append(_Search(about[0], about[1], *middles, rows))
    solutions: list[Solution] = []
    size = max(ENTRIES // settings.most**2, 1)
    for at in range(0, len(searches), size):
        part = searches[at : at + size]
        found = _hypotheses(part, settings)
        solutions += [
            _solution(search, transforms, settings, refine)
            for search, transforms in zip(part, found, strict=True)
        ]
    return solutions


def _hypotheses(searches: Sequence[_Search], settings: CliqueSettings) -> list[Tensor]:
    """Transforms [N, 4, 4] of the groups of every pair, one a match of its graph."""
    counts = [len(search.rows) for search in searches]
    number = max(counts)
    if number < 3:
        return [torch.zeros(0, 4, 4, dtype=torch.float64) for _ in searches]
    first = searches[0].source
    sides = first.new_zeros(2, len(searches), number, 3)
    there = torch.zeros(len(searches), number, dtype=torch.bool, device=first.device)
    for place, search in enumerate(searches):
        for side, points in enumerate((search.source, search.target)):
            sides[side, place, : counts[place]] = points[search.rows]
        there[place, : counts[place]] = True
    source, target = sides  # [B, N, 3]
    slack = settings.slack * settings.distance
    one, other = lengths(source, source), lengths(target, target)  # [B, N, N]
    edges = alike(one, other, slack)
    edges &= there[:, :, None] & there[:, None, :]
    groups, member = _groups(second_order(edges), settings.members)  # [B, N, G]
    batch = torch.arange(len(searches), device=first.device)[:, None, None]
    sets = source[batch, groups].flatten(0, 1), target[batch, groups].flatten(0, 1)  # [B N, G, 3]
    weight = _weights(one.sub_(other), groups, member, slack)
    transforms = fitted(*sets, weight).unflatten(0, (len(searches), number))
    # a leader whose group is too small for a transform has none
    whole = (weight > 0).sum(1).unflatten(0, (len(searches), number)) >= 3
    return [found[good] for found, good in zip(transforms, whole, strict=True)]


def _groups(support: Tensor, members: int) -> tuple[Tensor, Tensor]:
    """Rows [B, N, G] of every match and its neighbours with most support; which of them exist."""
    number = support.shape[-1]
    # whole keys, unique in a row: ties fall alike on every device; 2048² are exact in float32
    order = torch.arange(number - 1, -1, -1, device=support.device, dtype=torch.float32)
    keys = support * number + order
    best = keys.topk(min(members, number) - 1, dim=-1, sorted=False).values.long()
    rows, found = number - 1 - best % number, best >= number
    own = torch.arange(number, device=support.device)[:, None].expand(*support.shape[:-1], 1)
    return torch.cat([own, rows], -1), torch.cat([found.any(-1, keepdim=True), found], -1)


def _weights(gap: Tensor, groups: Tensor, member: Tensor, slack: float) -> Tensor:
    """Weights [B N, G] of the matches of groups: the leading eigenvector of their own graphs."""
    # gap: differences of lengths of all matches, [B, N, N]; groups and members are [B, N, G]
    number = gap.shape[-1]
    places = groups[..., :, None] * number + groups[..., None, :]  # [B, N, G, G]
    own = gap.flatten(1).gather(1, places.flatten(1)).view(-1, *places.shape[2:])  # [B N, G, G]
    member = member.flatten(0, 1).float()
    near = (1 - (own / slack).square_()).clamp_(min=0)
    near *= member[:, :, None] * member[:, None, :]
    hard = (near > 0).float()
    graph = near * (hard @ hard)
    vector = member[:, :, None]
    for step in range(1, POWER_STEPS + 1):
        vector = graph @ vector
        if step % APART_STEPS == 0:
            vector = vector / vector.amax(1, keepdim=True).clamp(min=1e-30)
    return vector.squeeze(2)


def _solution(
    search: _Search, transforms: Tensor, settings: CliqueSettings, refine: bool
) -> Solution:
    """The hypothesis with most support, and other poses, in the clouds' own coordinates."""
    tried = len(transforms)
    source, target = search.source.double(), search.target.double()
    agreement = Agreement(source, target, settings.distance)
    score = agreement.support(transforms)
    transforms, score = _distinct(search, transforms, score, settings)
    weight = agreement(transforms)  # [H, M]
    for _ in range(REFITS if refine and len(score) else 0):
        again = agreement.fitted(weight)
        near = agreement(again)
        now = near.sum(1)
        better, gains = now > score, now > (1 + GAIN) * score
        transforms = torch.where(better[:, None, None], again, transforms)
        weight = torch.where(better[:, None], near, weight)
        score = torch.where(better, now, score)
        if not bool(gains.any()):
            break
    # some have become the same pose
    transforms, score = _distinct(search, transforms, score, settings)
    agree = agreement(transforms) > 0
    enough = agree.sum(1) >= 3
    agree = agree[enough].cpu()
    poses = transforms[enough]
    poses[:, :3, 3] += search.middle_target - poses[:, :3, :3] @ search.middle_source
    poses = poses.cpu()
    if not len(poses):
        return Solution(None, torch.zeros(len(source), dtype=torch.bool), tried)
    return Solution(poses[0], agree[0], tried, Candidates(poses, agree, score[enough].cpu()))


def _distinct(
    search: _Search, transforms: Tensor, score: Tensor, settings: CliqueSettings
) -> tuple[Tensor, Tensor]:
    """Transforms that move the matches to other places, most support first, and their scores."""
    order = score.argsort(descending=True, stable=True)[:COMPARED]
    transforms, score = transforms[order], score[order]
    step = max(len(search.source) // PLACES, 1)
    places = transform_points(transforms, search.source[::step].double()).flatten(1)  # [H, 3 P]
    # root mean square distance of the places under two transforms
    apart = torch.cdist(places, places) / math.sqrt(max(places.shape[1] // 3, 1))
    same = (apart < APART * settings.distance).cpu().numpy()
    taken = np.zeros(len(same), dtype=bool)
    kept: list[int] = []
    while len(kept) < settings.candidates and not taken.all():
        kept.append(int(taken.argmin()))  # the first that is free
        taken |= same[kept[-1]]
        taken[kept[-1]] = True
    rows = torch.tensor(kept, dtype=torch.int64, device=score.device)
    return transforms[rows], score[rows]
