"""A pose is moved until surfaces that meet lie on each other: ICP, point to plane, on few points.

Matches are as exact as the cells that points are described in. Surfaces are flat over some cells,
so the distance of a point from the plane that it meets says more than that from a partner.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.registration.evidence import MEET, PairEvidence
from pcnn.registration.nearest import SortedCells, principal_axes
from pcnn.registration.rigid_fit import from_quaternion
from pcnn.registration.transforms import assembled, inverse, transform_points

#: Voxels from a plane beyond which a point says nothing, step by step: at first a pose may be off
#: by a voxel and more where clouds are wide.
WIDTHS = (2.0, 1.0, 0.5, 0.25)
#: Weight of a match, where that of a point on a plane is 1: so little that matches decide only
#: where planes leave the pose free, along an empty corridor.
HOLD = 0.01
PATCH = 4.0  # voxels: radius of the patch that tells a plane; rings of 16 beams lie far apart
EVERY = 2  # of the points, the one that a patch is made of


def fit_surfaces(transforms: Tensor, pairs: PairEvidence) -> Tensor:
    """Lay the surfaces of pairs of clouds on each other, from poses [B, 4, 4] right within voxels.

    Every step takes the motion with the least ``sum w (n·(T p - q))² + sum v |T s - t|²``: q are
    the nearest points within two voxels, n their normals, (s, t) the putative matches. Weights are
    Tukey's; w is also the square of the flatness ``(a - b) / c`` of a patch with deviations
    c > a > b along its axes: 1 of a plane, 0 of a ring of a spinning LiDAR (Demantké et al., 2011).

    Source: Chen and Medioni 1992; that matches take part, and both ways, is an addition.
    """
    sides, cell = pairs.sides, pairs.voxel_size
    normals, flat = _planes(pairs)
    pose = best = transforms.to(sides.some)
    most = pose.new_full((len(pose),), -1.0)
    moving, fixed, matched = pairs.ends
    for step in range(len(WIDTHS) + 1):
        met = _met(pose, pairs, normals, flat)
        gaps = transform_points(pose, moving) - fixed  # [B, M, 3]
        near = _inside(gaps.norm(dim=2), pairs.distance) * matched
        support = (met.flat * _inside(met.gap, WIDTHS[-1] * cell) ** 3).sum(1)
        support = support + HOLD * (near**3).sum(1)
        better = support > most
        best = torch.where(better[:, None, None], pose, best)
        most = torch.where(better, support, most)
        if step < len(WIDTHS):
            weight = met.flat * _inside(met.gap, WIDTHS[step] * cell) ** 2
            pose = _motion(met, weight, fixed + gaps, gaps, HOLD * near**2) @ pose
    return best.to(transforms.device)


class _Met(NamedTuple):
    """Points of both clouds, where poses lay them, and the planes that they meet or have."""

    points: Tensor  # [B, P, 3] float64
    normals: Tensor  # [B, P, 3] in the target
    gap: Tensor  # [B, P] between the surfaces, along the normal
    flat: Tensor  # [B, P] weight of the plane; 0 where no point of the other cloud is near


def _planes(pairs: PairEvidence) -> tuple[Tensor, Tensor]:
    """Normals [S, P, 3] of the planes at some points of all clouds, and squared flatness [S, P]."""
    sides, clouds, radius = pairs.sides, pairs.clouds, PATCH * pairs.voxel_size
    ends = torch.tensor(clouds.sizes).cumsum(0).tolist()
    rows = [
        torch.arange(end - own, end, EVERY) for end, own in zip(ends, clouds.sizes, strict=True)
    ]
    kept = torch.cat(rows).to(clouds.places.device)
    cells = SortedCells(clouds.places[kept].float(), radius, clouds.number[kept])
    size, width = sides.some.shape[:2]
    own = torch.arange(size, device=kept.device).repeat_interleave(width)
    places = sides.some.flatten(0, 1)
    variances, axes = principal_axes(clouds.places[kept], places, cells, radius, own)
    least, middle, most = variances.clamp(min=0).sqrt().unbind(1)
    flat = ((middle - least) / most.clamp(min=1e-12)).square().view(size, width)
    return axes[:, :, 0].view(size, width, 3), flat * sides.valid


def _met(pose: Tensor, pairs: PairEvidence, normals: Tensor, flat: Tensor) -> _Met:
    some, number, reach = pairs.sides.some, len(pose), MEET * pairs.voxel_size
    placed = transform_points(torch.cat([pose, inverse(pose)]), some)  # [S, P, 3]
    gap, rows = pairs.clouds.nearest(placed, pairs.across, reach)
    partners = pairs.clouds.places[rows]
    points = torch.cat([placed[:number], transform_points(pose, partners[number:])], 1)
    turned = torch.cat([normals[:number] @ pose[:, :3, :3].mT, normals[number:]], 1)
    along = ((points - torch.cat([partners[:number], some[number:]], 1)) * turned).sum(2)
    meets = (gap < reach) * flat
    return _Met(points, turned, along, torch.cat([meets[:number], meets[number:]], 1))


def _inside(gap: Tensor, width: float) -> Tensor:
    """One less the square of gaps over a width, zero beyond it."""
    return (1 - (gap / width).square()).clamp(min=0)


def _motion(met: _Met, weight: Tensor, ends: Tensor, gaps: Tensor, hold: Tensor) -> Tensor:
    """Motions [B, 4, 4] of a step, of planes and of matches with placed ends and gaps [B, M, 3]."""
    # a match is held by three planes along the axes
    axes = torch.eye(3, dtype=ends.dtype, device=ends.device)
    axes = axes.repeat_interleave(ends.shape[1], 0).expand(len(ends), -1, -1)
    points = torch.cat([met.points, ends.repeat(1, 3, 1)], 1)
    normals = torch.cat([met.normals, axes], 1)
    gap = torch.cat([met.gap, gaps.mT.flatten(1)], 1)
    weights = torch.cat([weight, hold.repeat(1, 3)], 1)[..., None]
    middle = (weights * points).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp(min=1e-12)
    rows = torch.cat([torch.linalg.cross(points - middle, normals), normals], 2)  # [B, P + 3 M, 6]
    square = (rows * weights).mT @ rows
    held = 1e-9 * square.diagonal(dim1=1, dim2=2) + 1e-12  # what nothing holds stays
    right = -(rows * weights).mT @ gap[..., None]  # [B, 6, 1]
    turn, shift = (
        torch.linalg.solve_ex(square + torch.diag_embed(held), right).result.squeeze(2).split(3, 1)
    )
    half = torch.cat([torch.ones_like(turn[:, :1]), turn / 2], 1)
    rotation = from_quaternion(torch.nn.functional.normalize(half))
    middle = middle.squeeze(1)
    return assembled(rotation, middle + shift - (rotation @ middle[..., None]).squeeze(2))
