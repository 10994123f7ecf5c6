"""Transforms from groups of matches that all keep each other's distance.

Some matches of a compatibility graph lead a group: themselves and the neighbours whose edges to
them have most second-order support. In a group right matches form a clique, or nearly one; its
weighted fit makes a hypothesis. No draws: groups are found where RANSAC would have to hit three
right matches by chance.

Ideas: SC2-PCR (Chen et al. 2022) for groups, MAC (Zhang et al. 2023) for hypotheses from cliques,
Leordeanu and Hebert 2005 for the eigenvector that weighs a group.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.registration.compatibility import SLACK, hypotheses, most_compatible
from pcnn.registration.rigid_fit import turned_onto
from pcnn.registration.solution import Found, Solution
from pcnn.registration.transforms import transform_points

ENTRIES = 1 << 24  # edges of graphs at once on a GPU
MOST = 1000  # matches in a graph: those with most compatible others
CANDIDATES = 12  # poses at most of a solution
RESIDUALS = 1 << 20  # at once: those of a block stay in a CPU's cache
REFITS = 5
GAIN = 5e-3  # of support, below which another fit is not worth its time
PLACES = 50  # matches by which poses are told apart
APART = 4.0  # distances: root mean square motion of the matches between two poses
FAR = 1e15  # [m], where partners of matches that do not exist lie: nothing agrees with them


def cliques_batch(
    sources: Sequence[Tensor],  # [M_b, 3] points of the matches in every source [m], on one device
    targets: Sequence[Tensor],  # [M_b, 3] their partners
    distance: float,  # largest residual of a match that agrees [m]
    refine: bool = True,
) -> list[Solution]:
    """Estimate the transforms of several pairs; each comes out as it would alone."""
    pairs = list(zip(sources, targets, strict=True))
    solutions: list[Solution] = []
    size = max(ENTRIES // MOST**2, 1) if pairs and sources[0].is_cuda else 1
    for at in range(0, len(pairs), size):
        solutions += _solved(pairs[at : at + size], distance, refine)
    return solutions


def _solved(
    pairs: Sequence[tuple[Tensor, Tensor]], distance: float, refine: bool
) -> list[Solution]:
    counts = [len(source) for source, _ in pairs]
    first = pairs[0][0]
    if max(counts) < 3:
        return [Solution(None, torch.zeros(count, dtype=torch.bool), 0) for count in counts]
    if len(pairs) == 1:
        return poses(pairs[0][0][None], pairs[0][1][None], None, distance, refine).on_host(counts)
    sides = first.new_zeros(2, len(pairs), max(counts), 3)
    for place, pair in enumerate(pairs):
        for side, points in enumerate(pair):
            sides[side, place, : len(points)] = points
    numbers = torch.cat([first.new_full((1,), count, dtype=torch.int64) for count in counts])
    return poses(sides[0], sides[1], numbers, distance, refine).on_host(counts)


def poses(
    source: Tensor,  # [B, M, 3] points of the matches, M >= 3
    target: Tensor,  # [B, M, 3] their partners
    counts: Tensor | None,  # [B] int64, how many rows of every pair are matches; None: all
    distance: float,  # largest residual of a match that agrees [m]
    refine: bool = True,
) -> Found:
    """Poses of pairs; on a GPU the host waits for nothing."""
    about, middles = _about_mean(torch.stack([source, target]), counts)
    one, other = about
    graphs = []
    for place, pair in enumerate(zip(one, other, strict=True)):
        count = None if counts is None else counts[place]
        graphs.append(most_compatible(*pair, SLACK * distance, MOST, count))
    rows = torch.stack(graphs)[..., None].expand(-1, -1, 3)
    found, large = hypotheses(one.gather(1, rows), other.gather(1, rows), distance)
    one, other = one.double(), other.double()
    agreement = Agreement(one, other, distance)
    spots = _spots(one, counts)
    score = torch.where(large, agreement.support(found), -1.0)
    found, score = _distinct(found, score, spots, distance)
    if refine:
        found, score = _refitted(agreement, found, score)
    # some have become the same pose
    found, score = _distinct(found, score, spots, distance)
    agree = (agreement(found) > 0) & (score > 0)[..., None]
    score = torch.where(agree.sum(2) >= 3, score, -1.0)
    turned = (found[..., :3] @ middles[0][:, None, :, None]).squeeze(-1)
    found[..., 3] += middles[1][:, None] - turned
    return Found(found, score, agree, large.sum(1))


class Agreement:
    """How well matches agree with transforms: 1 - (residual / distance)², 0 beyond the distance.

    The square of a residual is linear in products of coordinates, ``|p|² + |q|² + |t|² +
    2 (Rᵀt)·p - 2 t·q - 2 qᵀRp``: all residuals of many transforms are one product of matrices, in
    float64, and so are the sums that a weighted fit to the matches is made of.
    """

    def __init__(self, source: Tensor, target: Tensor, distance: float) -> None:
        self.scale = distance**2
        one = torch.ones_like(source[..., :1])
        moved = torch.cat([source, one], -1)  # [B, M, 4]
        both = (target[..., :, None] * (2 * moved)[..., None, :]).flatten(-2)  # 2 q (p, 1)ᵀ
        # [B, 16, M]: rows multiply those of [R t], then Rᵀt and |t|²
        self.products = (torch.cat([both, -2 * source, -one], -1) / self.scale).mT.contiguous()
        square = (source.square() + target.square()).sum(-1)
        self.alone = (1 - square / self.scale)[:, None]  # [B, 1, M]

    def __call__(self, rows: Tensor) -> Tensor:
        """Agreement [B, S, M] in 0..1 of transforms, of their first three rows [B, S, 3, 4]."""
        back = rows.mT @ rows[..., 3:]  # Rᵀt, |t|²
        factors = torch.cat([rows.flatten(-2), back.flatten(-2)], -1)  # [B, S, 16]
        return torch.baddbmm(self.alone, factors, self.products).clamp_(min=0)

    def fitted(self, weight: Tensor) -> Tensor:
        """Rows [B, S, 3, 4] of the transforms that fit the matches best, with weights [B, S, M]."""
        sums = weight @ self.products.mT  # [B, S, 16]
        total = sums[..., 15:].clamp(max=-1e-12 / self.scale)
        both, p, _ = (sums / (-2 * total)).flatten(0, -2).split((12, 3, 1), dim=1)
        both = both.unflatten(1, (3, 4))  # [B S, 3, 4] mean of q pᵀ, and of q
        p, q = -p, both[:, :, 3]
        covariance = torch.baddbmm(both[:, :, :3], q[:, :, None], p[:, None, :], alpha=-1)
        return turned_onto(covariance, p, q).unflatten(0, weight.shape[:-1])

    def support(self, rows: Tensor) -> Tensor:
        """Sums [B, S] of the agreement of all matches."""
        each = max(self.products[:, 0].numel(), 1)
        parts = rows.split(max(RESIDUALS // each, 1), dim=1)
        return torch.cat([self(part).sum(-1) for part in parts], -1)


def _about_mean(sides: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor]:
    """Points [2, B, M, 3] float32 about the mean of their cloud, and these [2, B, 3] float64."""
    wide = sides.double()
    if counts is None:
        middles = wide.mean(2)
        return (wide - middles[:, :, None]).float(), middles
    there = (torch.arange(sides.shape[2], device=sides.device) < counts[:, None])[..., None]
    middles = torch.where(there, wide, 0).sum(2) / counts[:, None].clamp(min=1)
    about = torch.where(there, wide - middles[:, :, None], 0)
    about[1].masked_fill_(~there, FAR)
    return about.float(), middles


def _spots(source: Tensor, counts: Tensor | None) -> Tensor:
    """Matches [B, P, 3] that stand for all of a pair."""
    number = source.shape[1]
    few = min(number, PLACES)
    spread = torch.arange(few, device=source.device)
    if counts is None:
        return source[:, spread * number // few]
    rows = (spread * counts[:, None]).div(few, rounding_mode="floor")
    return source.gather(1, rows[..., None].expand(-1, -1, 3))


def _distinct(
    found: Tensor, score: Tensor, spots: Tensor, distance: float
) -> tuple[Tensor, Tensor]:
    """Transforms that move the matches to other places, most support first, and their scores."""
    places = transform_points(found, spots[:, None])  # [B, S, P, 3]
    rows, there = distinct(places, score, APART * distance, CANDIDATES)
    found = found.gather(1, rows[..., None, None].expand(-1, -1, 3, 4))
    return found, torch.where(there, score.gather(1, rows), -1.0)


def distinct(places: Tensor, score: Tensor, apart: float, most: int) -> tuple[Tensor, Tensor]:
    """Rows [B, min(S, most)] of poses that put places [B, S, P, 3] elsewhere than better ones do.

    The highest score comes first; a pair may have fewer: [B, min(S, most)] says which there are.
    """
    spread = places.flatten(2)
    same = torch.cdist(spread, spread) < apart * max(places.shape[2], 1) ** 0.5  # [B, S, S]
    order = score.argsort(dim=1, descending=True, stable=True)
    number = order.shape[1]
    at = order[:, :, None].expand(-1, -1, number)
    ranked = same.gather(1, at).gather(2, at.mT).float()
    ranked.diagonal(dim1=1, dim2=2).fill_(1)
    keeps = 1 - ranked
    free = torch.ones_like(order, dtype=torch.float32)  # [B, S], by rank
    found, there = [], []
    for _ in range(min(most, number)):
        best, first = free.max(1, keepdim=True)  # of equal ones the first
        found.append(first)
        there.append(best)
        free = free * keeps.gather(1, first[:, :, None].expand(-1, -1, number)).squeeze(1)
    return order.gather(1, torch.cat(found, 1)), torch.cat(there, 1) > 0


def _refitted(agreement: Agreement, found: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    """Transforms [B, K, 3, 4] fitted to what agrees with them, while their support grows."""
    score = torch.where(score < 0, torch.inf, score)  # no fit is better than what is no pose
    weight = agreement(found)  # [B, K, M]
    running = torch.ones_like(score[:, :1], dtype=torch.bool)  # [B, 1]
    for _ in range(REFITS):
        again = agreement.fitted(weight)
        near = agreement(again)
        now = near.sum(2)
        better = (now > score) & running
        running = running & (now > (1 + GAIN) * score).any(1, keepdim=True)
        found = torch.where(better[..., None, None], again, found)
        weight = torch.where(better[..., None], near, weight)
        score = torch.where(better, now, score)
        # a GPU would wait for the answer longer than for the fits
        if not score.is_cuda and not bool(running.any()):
            break
    return found, torch.where(score == torch.inf, -1.0, score)
