"""RANSAC over putative matches, many hypotheses at once.

A hypothesis is dropped when an edge of it has different lengths in the two clouds, or when its
points do not meet; the others are scored by the matches within a distance, ties by residuals.

Source: Fischler and Bolles 1981; checks: Rusu 2009 and Open3D.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcnn.registration.cliques import Agreement
from pcnn.registration.rigid_fit import fitted
from pcnn.registration.settings import RansacSettings
from pcnn.registration.solution import Solution, on_host
from pcnn.registration.transforms import transform_points

ROUND = 5_000  # hypotheses between two looks at whether to stop
REFITS = 5
ENTRIES = 1 << 22  # residuals at once


def ransac(
    source: Tensor,  # [M, 3] points of the matches in the source [m]
    target: Tensor,  # [M, 3] their partners
    settings: RansacSettings,
    seed: int = 0,
    refine: bool = True,  # fit the best hypothesis again to its inliers
) -> Solution:
    """Estimate the transform of a pair; the same seed gives the same result on one device."""
    sides = torch.stack([source, target]).double()
    middles = sides.mean(1)
    sides = (sides - middles[:, None]).float()
    agreement = Agreement(sides[:1].double(), sides[1:].double(), settings.distance)
    generator = torch.Generator(source.device).manual_seed(seed)
    best: Tensor | None = None  # [4, 4] float64
    score, tried = 0.0, 0  # inliers of the best one, plus a part below 1 for small residuals
    # all that are asked for in one go where nothing can stop them early
    size = settings.hypotheses if settings.confidence == 1 else ROUND
    while not _settled(len(source), tried, score, settings):
        number = min(size, settings.hypotheses - tried)
        tried += number
        shape = number, settings.points
        rows = torch.randint(len(source), shape, generator=generator, device=source.device)
        transforms = _hypotheses(sides, rows, settings)
        if len(transforms):
            most, top = _scores(transforms, agreement).max(0, keepdim=True)
            found = torch.cat([most, transforms.index_select(0, top).flatten()]).cpu()
            if float(found[0]) > score:
                score, best = float(found[0]), found[1:].view(4, 4)
    if best is None:
        return Solution(None, torch.zeros(len(source), dtype=torch.bool), tried)
    # few numbers: a host is done sooner than it has asked a device
    middles, sides = on_host(middles, sides)
    one, other = sides.double()
    inliers = _inliers(best, one, other, settings.distance)
    for _ in range(REFITS if refine else 0):
        again = fitted(one[None], other[None], inliers[None])[0]
        now = _inliers(again, one, other, settings.distance)
        if now.sum() < inliers.sum():
            break
        best, inliers, same = again, now, torch.equal(now, inliers)
        if same:
            break
    best = best.clone()
    best[:3, 3] += middles[1] - best[:3, :3] @ middles[0]
    return Solution(best, inliers, tried)


def _settled(matches: int, tried: int, score: float, settings: RansacSettings) -> bool:
    """True where a better hypothesis is improbable enough."""
    if matches < settings.points or tried >= settings.hypotheses:
        return True
    if settings.confidence == 1 or not score:
        return False
    right = min(score / matches, 1.0) ** settings.points  # a hypothesis of inliers alone
    return right >= 1 or tried >= math.log(1 - settings.confidence) / math.log1p(-right)


def _hypotheses(sides: Tensor, rows: Tensor, settings: RansacSettings) -> Tensor:
    """Transforms [S, 4, 4] of the drawn rows [H, n] of both sides that pass both checks."""
    drawn = sides[:, rows]  # [2, H, n, 3]
    good = _plausible(drawn, rows, settings)
    if not good.is_cuda:  # which fits all of them sooner than it counts those
        drawn, good = drawn[:, good], good[good]
    transforms = fitted(*drawn)
    moving, fixed = drawn.double()
    gap = (transform_points(transforms, moving) - fixed).norm(dim=2)
    return transforms[good & (gap <= settings.distance).all(1)]


def _plausible(drawn: Tensor, rows: Tensor, settings: RansacSettings) -> Tensor:
    """Hypotheses [H] of different matches whose edges are as long in one cloud as in the other."""
    ends = torch.combinations(torch.arange(settings.points)).T
    first, second = ends.to(rows.device, non_blocking=True)
    one, other = (drawn[:, :, first] - drawn[:, :, second]).norm(dim=3)
    ratio = settings.edge_length
    good = (one >= ratio * other) & (other >= ratio * one) & (rows[:, first] != rows[:, second])
    return good.all(1)


def _inliers(transform: Tensor, source: Tensor, target: Tensor, distance: float) -> Tensor:
    return (transform_points(transform, source) - target).norm(dim=1) < distance


def _scores(transforms: Tensor, agreement: Agreement) -> Tensor:
    """Inliers [S] of transforms, plus a part below 1 for small residuals, which tells ties."""
    matches = agreement.products.shape[2]
    scores = []
    for part in transforms[None, :, :3].split(max(ENTRIES // matches, 1), 1):
        near = agreement(part)[0]  # [S, M]
        inliers = (near > 0).sum(1)
        scores.append(inliers + 0.999 * near.sum(1) / inliers.clamp(min=1))
    return torch.cat(scores)
