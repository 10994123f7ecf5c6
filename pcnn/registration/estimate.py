"""From two described clouds to a transform: matching, sampling, solving, fitting surfaces."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.models.overlap_head import log_scores
from pcnn.registration.cliques import cliques_batch
from pcnn.registration.descriptor import Described
from pcnn.registration.evidence import PairEvidence
from pcnn.registration.matching import BY_SCORES, sampled_matches
from pcnn.registration.open3d_tools import open3d_ransac
from pcnn.registration.ransac import ransac
from pcnn.registration.settings import AGREE, EstimateSettings
from pcnn.registration.solution import Solution
from pcnn.registration.surface_fit import on_surfaces
from pcnn.registration.verifier import best_pose


@dataclass(frozen=True, eq=False)
class Estimate:
    """Matches and transform of a pair."""

    source: Tensor  # [M, 3] points of the matches in the source, on the CPU
    target: Tensor  # [M, 3] their partners
    solution: Solution  # the transform, None where there is none, and which matches agree with it
    seconds: float  # of matching and solving
    evidence: PairEvidence  # for any pose of the pair, as it was matched
    agreed: Tensor  # [M] bool


def estimate_all(
    sources: Sequence[Described],
    targets: Sequence[Described],
    settings: EstimateSettings,
    samples: int | None = None,
    device: torch.device | str = "cpu",
    names: Sequence[str] | None = None,
) -> list[Estimate]:
    """Estimate the transforms of several pairs, the solver at all of them at once."""
    begun = time.perf_counter()
    clouds: list[tuple[Described, Described]] = []  # on the device
    matched: list[tuple[Tensor, Tensor]] = []
    for place, (source, target) in enumerate(zip(sources, targets, strict=True)):
        seed = settings.seed if names is None else seed_of(names[place], settings.seed)
        scores = _log_scores(source, target, settings, samples, device)
        one, other = source.to(device), target.to(device)
        try:
            matches = sampled_matches(
                one.features,
                other.features,
                samples,
                settings.matching,
                settings.sampling,
                torch.Generator().manual_seed(seed),
                scores,
            )
        except ValueError as error:
            raise ValueError(str(error) if names is None else f"{names[place]}: {error}") from error
        clouds.append((one, other))
        matched.append((one.points[matches.source], other.points[matches.target]))
    ends = [moving for moving, _ in matched], [fixed for _, fixed in matched]
    solutions = solve_all(*ends, settings)
    found = []
    distance = settings.ransac.distance
    for both, (moving, fixed), solution in zip(clouds, matched, solutions, strict=True):
        cell = distance / AGREE
        evidence = PairEvidence(*both, (moving, fixed), distance, cell, settings.view_points)
        solution = best_pose(solution, evidence, settings.verifier)
        agreed = solution.inliers
        if settings.surfaces:
            solution = on_surfaces(solution, evidence)
        found.append((moving.cpu(), fixed.cpu(), solution, evidence, agreed))
    seconds = (time.perf_counter() - begun) / max(len(found), 1)
    return [
        Estimate(source, target, solution, seconds, evidence, agreed)
        for source, target, solution, evidence, agreed in found
    ]


def solve_all(
    sources: Sequence[Tensor], targets: Sequence[Tensor], settings: EstimateSettings
) -> list[Solution]:
    """Transforms of matches [M, 3], before any choice among the poses of one."""
    rules, seed = settings.ransac, settings.seed
    if settings.solver == "cliques":
        return cliques_batch(sources, targets, rules.distance, settings.refine)
    pairs = zip(sources, targets, strict=True)
    if settings.solver == "open3d":
        return [open3d_ransac(*pair, rules, seed) for pair in pairs]
    return [ransac(*pair, rules, seed, settings.refine) for pair in pairs]


@torch.no_grad()
def _log_scores(
    source: Described,
    target: Described,
    settings: EstimateSettings,
    samples: int | None,
    device: torch.device | str,
) -> tuple[Tensor, Tensor] | None:
    """Scores of the points of both clouds, where they are asked for and a head gives them."""
    one, other = source.scored, target.scored
    if settings.sampling not in BY_SCORES or samples is None or one is None or other is None:
        return None
    head = one.head
    where = head.widths.device
    first, second = (
        (side.rows.to(where), cloud.points.to(where) / side.voxel_size)
        for side, cloud in ((one, source), (other, target))
    )
    found = log_scores(head, (first[0], second[0]), (first[1], second[1]))
    return found[0].to(device), found[1].to(device)


def seed_of(name: str, seed: int) -> int:
    """A seed of 63 bits for a name, the same in every process."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
