"""RANSAC over putative matches, many hypotheses and several pairs of clouds at once.

As in the field's reference, Open3D's, a hypothesis is a few matches drawn at random. It is dropped
when an edge between two of its points has different lengths in the two clouds, or when its points
do not meet under the transform they give. The others are scored by the matches within a distance,
ties by their residuals. Only what passes both checks, a small share, is fitted and scored.

Source: Fischler and Bolles 1981; checks: Rusu 2009 and Open3D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.registration.rigid_fit import fitted, weighted_svd
from pcnn.registration.settings import RansacSettings
from pcnn.registration.solution import Solution, checked_shapes
from pcnn.registration.transforms import transform_points

ROUND = 5_000  # hypotheses between two looks at whether to stop
REFITS = 5
ENTRIES = 1 << 24  # residuals at once


@dataclass
class _Search:
    """The state of one pair."""

    source: Tensor  # [M, 3] float32, points of the matches about their mean
    target: Tensor  # [M, 3] likewise
    generator: torch.Generator  # its own: results do not depend on the other pairs of a batch
    tried: int = 0  # hypotheses so far
    score: float = 0.0  # inliers of the best one, plus a part below 1 for small residuals
    best: Tensor | None = None  # [4, 4] float64


def ransac(
    source: Tensor,  # [M, 3] points of the matches in the source [m]
    target: Tensor,  # [M, 3] their partners
    settings: RansacSettings,
    seed: int = 0,
    refine: bool = True,
) -> Solution:
    """Estimate the transform of one pair; see `ransac_batch`."""
    return ransac_batch([source], [target], settings, seed, refine)[0]


def ransac_batch(
    sources: Sequence[Tensor],  # [M_b, 3] points of the matches in every source [m], on one device
    targets: Sequence[Tensor],  # [M_b, 3] their partners
    settings: RansacSettings,
    seed: int = 0,
    refine: bool = True,
) -> list[Solution]:
    """Estimate the transforms of several pairs; each comes out as it would alone.

    The same seed gives the same result on the same device.
    """
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources for {len(targets)} targets")
    middles = []
    searches = []
    for source, target in zip(sources, targets, strict=True):
        checked_matches(source, target)
        middle = (source.double().mean(0), target.double().mean(0))
        middles.append(middle)
        searches.append(
            _Search(
                (source.double() - middle[0]).float(),
                (target.double() - middle[1]).float(),
                torch.Generator(source.device).manual_seed(seed),
            )
        )
    while running := [search for search in searches if not _settled(search, settings)]:
        _round(running, settings)
    return [
        _solution(search, *middle, settings, refine)
        for search, middle in zip(searches, middles, strict=True)
    ]


def checked_matches(source: Tensor, target: Tensor) -> None:
    """Refuse matches that no solver can use."""
    checked_shapes(source, target)
    if not bool(torch.isfinite(source).all() & torch.isfinite(target).all()):
        raise ValueError("matched points hold NaN or infinite coordinates")


def _settled(search: _Search, settings: RansacSettings) -> bool:
    """True where a better hypothesis is improbable enough."""
    matches = len(search.source)
    if matches < settings.points or search.tried >= settings.hypotheses:
        return True
    if settings.confidence == 1 or search.best is None:
        return False
    right = min(search.score / matches, 1.0) ** settings.points  # a hypothesis of inliers alone
    if right >= 1:
        return True
    return search.tried >= math.log(1 - settings.confidence) / math.log1p(-right)


def _round(searches: Sequence[_Search], settings: RansacSettings) -> None:
    """Try some hypotheses of every pair; keep the best."""
    # all that are asked for in one go where nothing can stop them early
    size = settings.hypotheses if settings.confidence == 1 else ROUND
    picked: list[tuple[Tensor, Tensor]] = []
    for search in searches:
        number = min(size, settings.hypotheses - search.tried)
        search.tried += number
        rows = torch.randint(
            len(search.source),
            (number, settings.points),
            generator=search.generator,
            device=search.source.device,
        )
        rows = rows[_plausible(search.source[rows], search.target[rows], rows, settings)]
        picked.append((search.source[rows], search.target[rows]))
    sets = [torch.cat(side) for side in zip(*picked, strict=True)]  # [S, n, 3] twice
    transforms = fitted(*sets)
    gap = (transform_points(transforms, sets[0].double()) - sets[1].double()).norm(dim=2)
    meeting = (gap <= settings.distance).all(1)
    counts = [len(side) for side, _ in picked]
    for search, transform, meets in zip(
        searches, transforms.split(counts), meeting.split(counts), strict=True
    ):
        _keep_best(search, transform[meets], settings.distance)


def _plausible(source: Tensor, target: Tensor, rows: Tensor, settings: RansacSettings) -> Tensor:
    """Hypotheses [H] of different matches whose edges are as long in one cloud as in the other."""
    good = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    for i in range(settings.points):
        for j in range(i + 1, settings.points):
            one = (source[:, i] - source[:, j]).norm(dim=1)
            other = (target[:, i] - target[:, j]).norm(dim=1)
            ratio = settings.edge_length
            good &= (one >= ratio * other) & (other >= ratio * one) & (rows[:, i] != rows[:, j])
    return good


def _keep_best(search: _Search, transforms: Tensor, distance: float) -> None:
    """Score hypotheses [S, 4, 4] against all matches of a pair."""
    if not len(transforms):
        return
    inliers, squares = hypothesis_scores(transforms, search.source, search.target, distance)
    spread = squares / inliers.clamp(min=1)
    score = inliers.double() + (1 - spread.double()) * 0.999
    score = torch.where(inliers > 0, score, 0)
    top = int(score.argmax())
    if float(score[top]) > search.score:
        search.score, search.best = float(score[top]), transforms[top]


def _solution(
    search: _Search,
    middle_source: Tensor,
    middle_target: Tensor,
    settings: RansacSettings,
    refine: bool,
) -> Solution:
    """The best hypothesis, in the clouds' own coordinates."""
    if search.best is None:
        none = torch.zeros(len(search.source), dtype=torch.bool)
        return Solution(None, none, search.tried)
    transform, inliers = search.best, _inliers(search, search.best, settings.distance)
    for _ in range(REFITS if refine else 0):
        weight = inliers.double()
        again = weighted_svd(search.source.double(), search.target.double(), weight)
        now = _inliers(search, again, settings.distance)
        if int(now.sum()) < int(inliers.sum()):
            break
        same = bool((now == inliers).all())
        transform, inliers = again, now
        if same:
            break
    transform = transform.clone()
    transform[:3, 3] += middle_target - transform[:3, :3] @ middle_source
    return Solution(transform.cpu(), inliers.cpu(), search.tried)


def _inliers(search: _Search, transform: Tensor, distance: float) -> Tensor:
    moved = transform_points(transform, search.source.double())
    return (moved - search.target.double()).norm(dim=1) < distance


def hypothesis_scores(
    transforms: Tensor, source: Tensor, target: Tensor, distance: float
) -> tuple[Tensor, Tensor]:
    """Count the matches that agree with every transform, and add up their squared residuals."""
    if source.is_cuda:
        from pcnn.kernels import hypothesis_scores as kernel

        return kernel.hypothesis_scores(transforms, source, target, distance)
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
