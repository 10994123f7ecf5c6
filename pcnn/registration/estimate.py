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
from pcnn.registration.matching import BY_SCORES, Matches, sampled_matches
from pcnn.registration.ransac import ransac_batch
from pcnn.registration.rigid_fit import weighted_svd
from pcnn.registration.settings import AGREE, EstimateSettings
from pcnn.registration.solution import Solution
from pcnn.registration.surface_fit import on_surfaces
from pcnn.registration.transforms import transform_points
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
    matched: list[tuple[Matches, Tensor, Tensor]] = []
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
        matched.append((matches, one.points[matches.source], other.points[matches.target]))
    solutions = solve_all(matched, settings)
    found = []
    distance = settings.ransac.distance
    for both, (_, moving, fixed), solution in zip(clouds, matched, solutions, strict=True):
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
    matched: Sequence[tuple[Matches, Tensor, Tensor]], settings: EstimateSettings
) -> list[Solution]:
    """Transforms by the solver of the settings, before any choice among the poses of one."""
    ends = [source for _, source, _ in matched], [target for _, _, target in matched]
    if settings.solver == "ransac":
        return ransac_batch(*ends, settings.ransac, settings.seed, settings.refine)
    if settings.solver == "cliques":
        return cliques_batch(*ends, settings.ransac.distance, settings.refine)
    if settings.solver == "open3d":
        return [_by_open3d(*one, settings) for one in matched]
    return [_by_svd(*one, settings.ransac.distance) for one in matched]


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


def _by_open3d(
    matches: Matches, source: Tensor, target: Tensor, settings: EstimateSettings
) -> Solution:
    from pcnn.registration.open3d_tools import open3d_ransac

    rows = torch.arange(len(matches))
    listed = Matches(rows, rows, matches.distance)
    return open3d_ransac(source.cpu(), target.cpu(), listed, settings.ransac, settings.seed)


def _by_svd(matches: Matches, source: Tensor, target: Tensor, distance: float) -> Solution:
    if len(matches) < 3:
        return Solution(None, torch.zeros(len(matches), dtype=torch.bool), 0)
    scale = matches.distance.double().median().clamp(min=1e-12)
    weight = torch.exp(-(matches.distance.double() / scale).square() / 2)
    transform = weighted_svd(source.double(), target.double(), weight)
    gap = (transform_points(transform, source.double()) - target.double()).norm(dim=1)
    return Solution(transform.cpu(), (gap < distance).cpu(), 1)
