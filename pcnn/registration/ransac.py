"""RANSAC over putative matches, many hypotheses at once.

A hypothesis is dropped when an edge of it has different lengths in the two clouds, or when its
points do not meet; the others are scored by the matches within a distance, ties by residuals.

Source: Fischler and Bolles 1981; checks: Rusu 2009 and Open3D.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcnn.registration.rigid_fit import fitted
from pcnn.registration.settings import RansacSettings
from pcnn.registration.solution import Solution
from pcnn.registration.transforms import transform_points

ROUND = 5_000  # hypotheses between two looks at whether to stop
REFITS = 5
ENTRIES = 1 << 24  # residuals at once


def ransac(
    source: Tensor,  # [M, 3] points of the matches in the source [m]
    target: Tensor,  # [M, 3] their partners
    settings: RansacSettings,
    seed: int = 0,
    refine: bool = True,  # fit the best hypothesis again to its inliers
) -> Solution:
    """Estimate the transform of a pair; the same seed gives the same result on one device."""
    middles = source.double().mean(0), target.double().mean(0)
    one, other = (
        (side.double() - middle).float()
        for side, middle in zip((source, target), middles, strict=True)
    )
    generator = torch.Generator(source.device).manual_seed(seed)
    best: Tensor | None = None  # [4, 4] float64
    score, tried = 0.0, 0  # inliers of the best one, plus a part below 1 for small residuals
    # all that are asked for in one go where nothing can stop them early
    size = settings.hypotheses if settings.confidence == 1 else ROUND
    while not _settled(len(source), tried, score, settings):
        number = min(size, settings.hypotheses - tried)
        tried += number
        shape = number, settings.points
        rows = torch.randint(len(one), shape, generator=generator, device=one.device)
        transforms = _hypotheses(one, other, rows, settings)
        if len(transforms):
            inliers, squares = hypothesis_scores(transforms, one, other, settings.distance)
            spread = squares / inliers.clamp(min=1)  # ties are told by residuals
            scores = inliers.double() + (1 - spread.double()) * 0.999
            most, top = torch.where(inliers > 0, scores, 0).max(0)
            if float(most) > score:
                score, best = float(most), transforms[top]
    if best is None:
        return Solution(None, torch.zeros(len(source), dtype=torch.bool), tried)
    one, other = one.double(), other.double()
    inliers = _inliers(best, one, other, settings.distance)
    for _ in range(REFITS if refine else 0):
        again = fitted(one[None], other[None], inliers[None])[0]
        now = _inliers(again, one, other, settings.distance)
        fewer, same = torch.stack([now.sum() < inliers.sum(), (now == inliers).all()]).tolist()
        if fewer:
            break
        best, inliers = again, now
        if same:
            break
    best = best.clone()
    best[:3, 3] += middles[1] - best[:3, :3] @ middles[0]
    return Solution(best.cpu(), inliers.cpu(), tried)


def _settled(matches: int, tried: int, score: float, settings: RansacSettings) -> bool:
    """True where a better hypothesis is improbable enough."""
    if matches < settings.points or tried >= settings.hypotheses:
        return True
    if settings.confidence == 1 or not score:
        return False
    right = min(score / matches, 1.0) ** settings.points  # a hypothesis of inliers alone
    return right >= 1 or tried >= math.log(1 - settings.confidence) / math.log1p(-right)


def _hypotheses(source: Tensor, target: Tensor, rows: Tensor, settings: RansacSettings) -> Tensor:
    """Transforms [S, 4, 4] of the drawn rows [H, n] that pass both checks."""
    rows = rows[_plausible(source[rows], target[rows], rows, settings)]
    moving, fixed = source[rows], target[rows]
    transforms = fitted(moving, fixed)
    gap = (transform_points(transforms, moving.double()) - fixed.double()).norm(dim=2)
    return transforms[(gap <= settings.distance).all(1)]


def _plausible(source: Tensor, target: Tensor, rows: Tensor, settings: RansacSettings) -> Tensor:
    """Hypotheses [H] of different matches whose edges are as long in one cloud as in the other."""
    first, second = torch.combinations(torch.arange(settings.points)).T.to(rows.device)
    one, other = ((side[:, first] - side[:, second]).norm(dim=2) for side in (source, target))
    ratio = settings.edge_length
    good = (one >= ratio * other) & (other >= ratio * one) & (rows[:, first] != rows[:, second])
    return good.all(1)


def _inliers(transform: Tensor, source: Tensor, target: Tensor, distance: float) -> Tensor:
    return (transform_points(transform, source) - target).norm(dim=1) < distance


def hypothesis_scores(
    transforms: Tensor, source: Tensor, target: Tensor, distance: float
) -> tuple[Tensor, Tensor]:
    """Count the matches that agree with every transform, and add up their squared residuals."""
    if source.is_cuda:
        from pcnn.registration import score_kernel

        return score_kernel.hypothesis_scores(transforms, source, target, distance)
    counts, sums = [], []
    for part in transforms.float().split(max(ENTRIES // len(source), 1)):
        square = _squares(part, source, target)  # [S, M]
        near = square < distance**2
        counts.append(near.sum(1))
        sums.append(torch.where(near, square, 0).sum(1) / distance**2)
    return torch.cat(counts), torch.cat(sums)


def _squares(transforms: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Squared residuals [S, M] of matches, one axis after the other to hold little at once."""
    total = torch.zeros(len(transforms), len(source), device=source.device)
    for axis in range(3):
        row = transforms[:, axis]  # [S, 4]
        gap = row[:, 3:] - target[:, axis]
        for other in range(3):
            gap = torch.addcmul(gap, row[:, other : other + 1], source[:, other])
        total.addcmul_(gap, gap)
    return total
