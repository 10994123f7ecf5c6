"""From two described clouds to a transform: matching, sampling, solving, and maybe ICP."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.registration.cliques import cliques_batch
from pcnn.registration.descriptor import Described
from pcnn.registration.matching import Matches, sampled_matches
from pcnn.registration.ransac import Solution, ransac_batch
from pcnn.registration.rigid_fit import weighted_svd
from pcnn.registration.settings import CliqueSettings, EstimateSettings
from pcnn.registration.transforms import transform_points
from pcnn.registration.turned_copies import in_one_order
from pcnn.registration.verifier import best_pose

REACH = 1.5  # voxels: the distance of matches that agree


@dataclass(frozen=True, eq=False)
class Estimate:
    """Matches and transform of a pair.

    Args:
        source: [M, 3] points of the matches in the source, on the CPU.
        target: [M, 3] their partners.
        solution: the transform, None where there is none, and which matches agree with it.
        described: both clouds with the descriptors that were matched, where it computed.
        seconds: of matching and solving.
    """

    source: Tensor
    target: Tensor
    solution: Solution
    seconds: float
    described: tuple[Described, Described]


def estimate_all(
    sources: Sequence[Described],
    targets: Sequence[Described],
    settings: EstimateSettings,
    samples: int | None = None,
    device: torch.device | str = "cpu",
    names: Sequence[str] | None = None,
) -> list[Estimate]:
    """Estimate the transforms of several pairs, the solver at all of them at once.

    Args:
        sources: one a pair.
        targets: one a pair.
        settings: how.
        samples: number of samples; None uses all.
        device: where matching and the solvers but Open3D's compute.
        names: of the pairs, for messages; samples are then drawn by the name of a pair and the
            seed, otherwise by the seed.

    Returns:
        One estimate a pair, in order; each is what it would be alone.

    Raises:
        ValueError: descriptors hold NaN or infinite numbers; a name is given with it.
    """
    begun = time.perf_counter()
    made: list[tuple[Matches, Tensor, Tensor]] = []
    compared: list[tuple[Described, Described]] = []
    for place, (source, target) in enumerate(zip(sources, targets, strict=True)):
        seed = settings.seed if names is None else seed_of(names[place], settings.seed)
        both = _compared(source, target, device)
        compared.append(both)
        try:
            matches = sampled_matches(
                both[0].features,
                both[1].features,
                samples,
                settings.matching,
                settings.sampling,
                torch.Generator().manual_seed(seed),
            )
        except ValueError as error:
            raise ValueError(str(error) if names is None else f"{names[place]}: {error}") from error
        made.append(
            (
                matches,
                both[0].points[matches.source],
                both[1].points[matches.target],
            )
        )
    ends = [source for _, source, _ in made], [target for _, _, target in made]
    if settings.solver == "ransac":
        solutions = ransac_batch(*ends, settings.ransac, settings.seed, settings.refine)
    elif settings.solver == "cliques":
        solutions = cliques_batch(*ends, CliqueSettings(settings.ransac.distance), settings.refine)
        solutions = [
            best_pose(solution, *both, settings.ransac.distance / REACH, settings.view_points)
            for solution, both in zip(solutions, compared, strict=True)
        ]
    elif settings.solver == "open3d":
        solutions = [_by_open3d(*one, settings) for one in made]
    else:
        solutions = [_by_svd(*one, settings.ransac.distance) for one in made]
    seconds = (time.perf_counter() - begun) / max(len(made), 1)
    return [
        Estimate(source.cpu(), target.cpu(), solution, seconds, both)
        for (_, source, target), solution, both in zip(made, solutions, compared, strict=True)
    ]


def _compared(
    source: Described, target: Described, device: torch.device | str
) -> tuple[Described, Described]:
    """Clouds with the descriptors that are matched: of turned copies, where both have them."""
    if source.turned is None or target.turned is None:
        features = source.features.to(device), target.features.to(device)
    else:
        features = in_one_order(source, target, device)
    one, other = (side.points.to(device) for side in (source, target))
    return Described(one, features[0]), Described(other, features[1])


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
