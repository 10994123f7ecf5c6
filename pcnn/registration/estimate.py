"""From two described clouds to a transform: matching, sampling, solving, fitting surfaces."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pcnn.registration.cliques import cliques_batch
from pcnn.registration.descriptor import Described
from pcnn.registration.evidence import PairEvidence
from pcnn.registration.matching import sampled_matches
from pcnn.registration.ransac import ransac
from pcnn.registration.settings import AGREE, EstimateSettings
from pcnn.registration.solution import Solution
from pcnn.registration.surface_fit import fit_surfaces
from pcnn.registration.transforms import transform_points
from pcnn.registration.verifier import best_poses


@dataclass(frozen=True, eq=False)
class Estimate:
    """Matches and transform of a pair."""

    source: Tensor  # [M, 3] points of the matches in the source, on the device
    target: Tensor  # [M, 3] their partners
    solution: Solution  # the transform, None where there is none, and which matches agree with it
    agreed: Tensor  # [M] bool, matches that agreed before surfaces moved the pose
    pairs: PairEvidence | None = None  # that it was judged with; None where the solver found none
    number: int = 0  # among these
    seconds: float = math.nan  # of matching and solving

    def evidence(self, poses: Tensor) -> Tensor:
        """The evidence [K, E] for poses [K, 4, 4] float64 of the pair, of which there is one."""
        assert self.pairs is not None
        asked = [poses[:0]] * len(self.pairs.sources)
        asked[self.number] = poses
        return self.pairs(asked)[self.number]


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
    pairs = zip(sources, targets, strict=True)
    clouds = [(source.to(device), target.to(device)) for source, target in pairs]
    features = [[pair[end].features for pair in clouds] for end in (0, 1)]
    own = settings.seed
    seeds = [own] * len(clouds) if names is None else [seed_of(name, own) for name in names]
    rules = settings.matching, settings.sampling
    rows = sampled_matches(features[0], features[1], samples, *rules, seeds)
    finite = [torch.stack([one.isfinite().all() for one in side]) for side in features if side]
    for place, known in enumerate((finite[0] & finite[1]).tolist() if clouds else ()):
        if not known:
            named = "" if names is None else f"{names[place]}: "
            raise ValueError(f"{named}descriptors hold NaN or infinite numbers: none is nearest")
    matched = [
        (one.points[moved], other.points[met])
        for (one, other), (moved, met) in zip(clouds, rows, strict=True)
    ]
    moving, fixed = [one for one, _ in matched], [other for _, other in matched]
    solutions = solve_all(moving, fixed, settings)
    found = [
        Estimate(*ends, one, one.inliers) for ends, one in zip(matched, solutions, strict=True)
    ]
    there = [at for at, one in enumerate(solutions) if one.transform is not None]
    if there:
        judged = _judged([clouds[at] for at in there], [found[at] for at in there], settings)
        for at, estimate in zip(there, judged, strict=True):
            found[at] = estimate
    seconds = (time.perf_counter() - begun) / max(len(found), 1)
    return [replace(one, seconds=seconds) for one in found]


def _judged(
    clouds: Sequence[tuple[Described, Described]],
    estimates: Sequence[Estimate],
    settings: EstimateSettings,
) -> list[Estimate]:
    """Estimates with the pose that the clouds speak most for, fitted to surfaces."""
    distance = settings.ransac.distance
    sources, targets = zip(*clouds, strict=True)
    ends = [(one.source, one.target) for one in estimates]
    seen = PairEvidence(sources, targets, ends, distance, distance / AGREE, settings.view_points)
    chosen = best_poses([one.solution for one in estimates], seen, settings.verifier)
    fitted = chosen
    if settings.surfaces:
        poses = torch.stack([one.transform for one in chosen if one.transform is not None])
        poses = fit_surfaces(poses, seen)
        moving, fixed, _ = seen.ends
        near = ((transform_points(poses.to(moving), moving) - fixed).norm(dim=2) < distance).cpu()
        fitted = [
            replace(one, transform=pose, inliers=rows[: len(one.inliers)])
            for one, pose, rows in zip(chosen, poses, near, strict=True)
        ]
    return [
        replace(one, solution=last, pairs=seen, number=number, agreed=first.inliers)
        for number, (one, first, last) in enumerate(zip(estimates, chosen, fitted, strict=True))
    ]


def solve_all(
    sources: Sequence[Tensor], targets: Sequence[Tensor], settings: EstimateSettings
) -> list[Solution]:
    """Transforms of matches [M, 3], before any choice among the poses of one."""
    rules, seed = settings.ransac, settings.seed
    if settings.solver == "cliques":
        return cliques_batch(sources, targets, rules.distance, settings.refine)
    pairs = zip(sources, targets, strict=True)
    return [ransac(*pair, rules, seed, settings.refine) for pair in pairs]


def seed_of(name: str, seed: int) -> int:
    """A seed of 63 bits for a name, the same in every process."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
