"""One cloud onto another, and whether to believe it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.messages import counted
from pcnn.metrics.registration.errors import match_distances
from pcnn.registration.cloud_measures import CloudMeasures
from pcnn.registration.descriptor import Described, Descriptor
from pcnn.registration.estimate import estimate_all
from pcnn.registration.evidence import MEET
from pcnn.registration.nearest import nearest_within
from pcnn.registration.rivals import Rivals, rivals_of_matches, with_other_poses
from pcnn.registration.settings import AGREE, EstimateSettings, RansacSettings, Solver
from pcnn.registration.transforms import transform_points
from pcnn.registration.verifier import shipped_verifier

#: Samples of each cloud, as in the benchmarks' tables.
SAMPLES = 5000
LEAST_OVERLAP = 0.05  # share of the source that must lie near the target


class NoOverlapError(ValueError):
    """No transform is supported well enough: the clouds may not overlap."""


class NotRigidError(NoOverlapError):
    """One cloud is a larger, smaller or mirrored copy of the other: no rigid transform is right."""

    def __init__(self, reason: str, rivals: Rivals) -> None:
        super().__init__(reason)
        self.rivals = rivals


class AmbiguousError(NoOverlapError):
    """The source lies on the target as well in other poses."""

    def __init__(self, rivals: Rivals) -> None:
        super().__init__(
            f"no transform found: the shape does not tell the pose, {rivals.ambiguity} "
            "(allow_ambiguous takes one)"
        )
        self.rivals = rivals


@dataclass(frozen=True, eq=False)
class Registration:
    """A transform and the evidence for it."""

    transform: Tensor  # [4, 4] float64, source to target
    matches: int  # putative matches
    inliers: int  # matches that agree with the transform: within the distance of RANSAC under it
    overlap: float  # share of the source's described points with a target point within two voxels
    rmse: float  # root mean square residual of the inliers [m]
    descriptor: str  # name
    solver: str  # name
    confidence: float = math.nan  # probability that the transform is right
    reason: str = ""  # why this descriptor was taken, where it was chosen automatically
    scale: float = math.nan
    ambiguity: str = ""  # which other poses fit as well
    measures: CloudMeasures | None = None  # of both clouds


def default_settings(
    voxel_size: float, seed: int = 0, solver: Solver = "cliques", view_points: bool = True
) -> EstimateSettings:
    """Mutual matches within one and a half voxels, and the pose then fitted to surfaces."""
    return EstimateSettings(
        RansacSettings(distance=AGREE * voxel_size, points=3, confidence=0.999),
        solver=solver,
        matching="mutual",
        seed=seed,
        view_points=view_points,
        surfaces=True,
    )


def register_described(
    source: Described,
    target: Described,
    descriptor: Descriptor,
    settings: EstimateSettings | None = None,
    samples: int | None = SAMPLES,
    min_confidence: float | None = None,
    min_inliers: int = 3,
    allow_ambiguous: bool = False,
    device: torch.device | str = "cpu",
    progress: Callable[[str], object] = str,
) -> Registration:
    """Estimate the transform of a described source cloud onto a described target cloud."""
    settings = settings or default_settings(descriptor.voxel_size)
    source, target = source.to(device), target.to(device)
    progress("matching and solving")
    (estimate,) = estimate_all([source], [target], settings, samples, device)
    # as many as the solver found: it takes the pose with most, so an exact one has some fewer
    transform, inliers = estimate.solution.transform, estimate.agreed
    matches, agreeing = len(inliers), int(inliers.sum())
    agree = f"{agreeing} of {counted(matches, 'match', 'matches')} agree"
    progress("verifying")
    ends, tried = (estimate.source, estimate.target), estimate.solution.hypotheses
    rivals = rivals_of_matches(*ends, settings.ransac, tried, settings.seed)
    refusal = rivals.not_rigid(agreeing)

    def unsupported(reason: str) -> NoOverlapError:
        if refusal:
            return NotRigidError(f"no transform found: {refusal}", rivals)
        return NoOverlapError(f"no transform found: {reason}")

    if transform is None or agreeing < min_inliers:
        raise unsupported(f"{agree}, {min_inliers} required (min_inliers)")
    matched = torch.stack(ends).cpu()
    width = width_of(matched[0, inliers])
    if 2 * width < settings.ransac.distance:
        raise unsupported(f"{agree}, and lie within {width:.2g} m of a line")
    verifier = settings.verifier or shipped_verifier()
    least = verifier.threshold if min_confidence is None else min_confidence
    confidence = verifier.confidence(estimate.evidence(transform[None])[0])
    if not confidence >= least:
        needed = f"{least:.2f} required (min_confidence)"
        raise unsupported(f"confidence {confidence:.2f}, {needed}; {agree}")
    # of the transform that is returned: surfaces may have moved it
    residual = match_distances(matched[0], matched[1], transform)
    residual = residual[residual < settings.ransac.distance]
    if len(residual) < 3:
        raise unsupported(
            f"{agree} before the pose was fitted to surfaces, {len(residual)} after it"
        )
    placed = transform_points(transform.to(device, non_blocking=True), source.points.double())
    _, found = nearest_within(placed, target.points, MEET * descriptor.voxel_size)
    overlap = float((found >= 0).double().mean())
    if overlap < LEAST_OVERLAP:
        raise unsupported(
            f"{100 * overlap:.1f} % of the source lies near the target, {100 * LEAST_OVERLAP:g} "
            "% required"
        )
    size = descriptor.voxel_size
    rivals = with_other_poses(rivals, source.points, target.points, transform, size, settings.seed)
    if rivals.ambiguity and not allow_ambiguous:
        raise AmbiguousError(rivals)
    # after the shape was looked at: a mirror image of a symmetric one is nothing else
    if refusal:
        raise unsupported(refusal)
    return Registration(
        transform,
        matches,
        len(residual),
        overlap,
        float(residual.square().mean().sqrt()),
        descriptor.name,
        settings.solver,
        confidence,
        scale=rivals.scale,
        ambiguity=rivals.ambiguity,
    )


def width_of(points: Tensor) -> float:
    """Largest distance [m] of points [P, 3], at least one, from the line that fits them best."""
    centred = points.double() - points.double().mean(0)
    line = torch.linalg.svd(centred, full_matrices=False).Vh[0]  # [3]
    across = centred - (centred @ line)[:, None] * line
    return float(across.norm(dim=1).max())
