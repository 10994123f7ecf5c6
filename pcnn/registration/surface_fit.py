"""A pose is moved until surfaces that meet lie on each other: ICP, point to plane, on few points.

Matches are as exact as the cells that points are described in. Surfaces are flat over some cells,
so the distance of a point from the plane that it meets says more than that from a partner. Nearest
points take part, not those with the nearest descriptors: these were no better, and cost more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.registration.evidence import MEET, PairEvidence, Side
from pcnn.registration.normals import principal_axes
from pcnn.registration.rigid_fit import from_quaternion
from pcnn.registration.solution import Solution
from pcnn.registration.transforms import assembled, inverse, transform_points

#: Voxels from a plane beyond which a point says nothing, step by step: at first a pose may be off
#: by a voxel and more where clouds are wide.
WIDTHS = (2.0, 1.0, 0.5, 0.25)
#: Weight of a match, where that of a point on a plane is 1: so little that matches decide only
#: where planes leave the pose free, along an empty corridor.
HOLD = 0.01
PATCH = 4.0  # voxels: radius of the patch that tells a plane; rings of 16 beams lie far apart
EVERY = 2  # of the points, the one that a patch is made of


def on_surfaces(solution: Solution, evidence: PairEvidence) -> Solution:
    """The solution with its pose fitted to the surfaces, and the matches that then agree."""
    if solution.transform is None:
        return solution
    transform = fit_surfaces(solution.transform, evidence)
    moving, fixed = (side.to("cpu", torch.float64) for side in evidence.ends)
    gap = (transform_points(transform, moving) - fixed).norm(dim=1)
    return replace(solution, transform=transform, inliers=gap < evidence.distance)


def fit_surfaces(transform: Tensor, evidence: PairEvidence) -> Tensor:
    """Lay the surfaces of two clouds on each other, from a pose that is right within some voxels.

    Every step finds, for the points of each cloud that evidence looks at, the nearest point of the
    other within two voxels. Of all motions, linearised about the weighted middle of the points, it
    takes the one with the least ``sum w (n·(T p - q))² + sum v |T s - t|²``: n are normals where
    the points were taken, (s, t) the putative matches. The weights are Tukey's,
    ``(1 - (r / width)²)²`` within the width and zero beyond it. Of planes w is that by `WIDTHS`
    times the square of the flatness of the patch; of matches v is `HOLD` times that by the distance
    within which they agree. Flatness is ``(a - b) / c`` of the deviations c > a > b along the axes
    of a patch: 1 of a plane, 0 of a line, such as a ring of a spinning LiDAR (Demantké et al.,
    2011). Nothing waits for the device after the planes are known, until the pose is copied.

    Source: Chen and Medioni 1992; that matches take part, and both ways, is an addition.
    """
    one, other = (_planes(side, evidence.voxel_size) for side in evidence.sides)
    pose = best = transform.to(one.side.places.device, torch.float64)
    most = pose.new_tensor(-1.0)
    moving, fixed = (side.to(pose) for side in evidence.ends)
    for step in range(len(WIDTHS) + 1):
        met = _met(pose, one, other, evidence.voxel_size)
        gaps = transform_points(pose, moving) - fixed  # [M, 3]
        near = _inside(gaps.norm(dim=1), evidence.distance)
        support = (met.flat * _inside(met.gap, WIDTHS[-1] * evidence.voxel_size) ** 3).sum()
        support = support + HOLD * (near**3).sum()
        better = support > most
        best, most = torch.where(better, pose, best), torch.where(better, support, most)
        if step < len(WIDTHS):
            weight = met.flat * _inside(met.gap, WIDTHS[step] * evidence.voxel_size) ** 2
            pose = _motion(met, weight, fixed + gaps, gaps, HOLD * near**2) @ pose
    return best.to(transform.device)


class _Planes(NamedTuple):
    """A cloud with the planes at some of its points."""

    side: Side
    normals: Tensor  # [P, 3] float64
    flat: Tensor  # [P] 0..1, the square of the flatness


class _Met(NamedTuple):
    """Points of the source, where a pose lays them, and the planes that they meet or have."""

    points: Tensor  # [P, 3] float64
    normals: Tensor  # [P, 3] in the target
    gap: Tensor  # [P] between the surfaces, along the normal
    flat: Tensor  # [P] weight of the plane; 0 where no point of the other cloud is near


def _planes(side: Side, voxel_size: float) -> _Planes:
    variances, axes = principal_axes(side.places[::EVERY], side.some, PATCH * voxel_size)
    least, middle, most = variances.clamp(min=0).sqrt().unbind(1)
    return _Planes(side, axes[:, :, 0], ((middle - least) / most.clamp(min=1e-12)).square())


def _met(pose: Tensor, source: _Planes, target: _Planes, voxel_size: float) -> _Met:
    one, other = source.side, target.side
    placed = transform_points(pose, one.some)
    there, partners = other.nearest(placed)
    back, origins = one.nearest(transform_points(inverse(pose), other.some))
    points = torch.cat([placed, transform_points(pose, one.places[origins])])
    normals = torch.cat([source.normals @ pose[:3, :3].T, target.normals])
    gap = ((points - torch.cat([other.places[partners], other.some])) * normals).sum(1)
    meets = torch.cat([there, back]) < MEET * voxel_size
    return _Met(points, normals, gap, meets * torch.cat([source.flat, target.flat]))


def _inside(gap: Tensor, width: float) -> Tensor:
    """One less the square of gaps over a width, zero beyond it."""
    return (1 - (gap / width).square()).clamp(min=0)


def _motion(met: _Met, weight: Tensor, ends: Tensor, gaps: Tensor, hold: Tensor) -> Tensor:
    """Motion [4, 4] of a step, of planes and of matches with placed ends and gaps [M, 3]."""
    # a match is held by three planes along the axes
    axes = torch.eye(3, dtype=ends.dtype, device=ends.device)
    points = torch.cat([met.points, ends.repeat(3, 1)])
    normals = torch.cat([met.normals, axes.repeat_interleave(len(ends), 0)])
    gap, weights = torch.cat([met.gap, gaps.T.flatten()]), torch.cat([weight, hold.repeat(3)])
    middle = (weights @ points) / weights.sum().clamp(min=1e-12)
    rows = torch.cat([torch.linalg.cross(points - middle, normals), normals], 1)  # [P + 3 M, 6]
    weighted = rows * weights[:, None]
    square = weighted.T @ rows
    square = square + torch.diag(1e-9 * square.diagonal() + 1e-12)  # what nothing holds stays
    turn, shift = torch.linalg.solve_ex(square, -(weighted.T @ gap)).result.split(3)
    half = torch.cat([torch.ones_like(turn[:1]), turn / 2])
    rotation = from_quaternion(torch.nn.functional.normalize(half[None]))[0]
    return assembled(rotation, middle + shift - rotation @ middle)
