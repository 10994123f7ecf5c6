"""A pose is moved until surfaces that meet lie on each other: ICP, point to plane, on few points.

Matches are as exact as the cells that points are described in. Surfaces are flat over some cells,
so the distance of a point from the plane that it meets says more than that from a partner.
"""

from __future__ import annotations

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
    # a match is held by three planes along the axes
    axes = torch.eye(3, dtype=pose.dtype, device=pose.device)
    axes = axes.repeat_interleave(fixed.shape[1], 0).expand(len(pose), -1, -1)
    for step in range(len(WIDTHS) + 1):
        points, planes, along, weight = _met(pose, pairs, normals, flat)
        placed = transform_points(pose, moving)  # [B, M, 3]
        gaps = placed - fixed
        hold = _inside(gaps.square().sum(2), pairs.distance) * matched
        off = along.square()
        support = (weight * _inside(off, WIDTHS[-1] * cell) ** 3).sum(1)
        support = support.add((hold**3).sum(1), alpha=HOLD)
        better = support > most
        best = torch.where(better[:, None, None], pose, best)
        most = torch.where(better, support, most)
        if step < len(WIDTHS):
            points = torch.cat([points, placed.repeat(1, 3, 1)], 1)
            planes = torch.cat([planes, axes], 1)
            gap = torch.cat([along, gaps.mT.flatten(1)], 1)
            weight = weight * _inside(off, WIDTHS[step] * cell) ** 2
            weight = torch.cat([weight, (HOLD * hold**2).repeat(1, 3)], 1)
            pose = _motion(points, planes, gap, weight) @ pose
    return best.to(transforms.device)


def _planes(pairs: PairEvidence) -> tuple[Tensor, Tensor]:
    """Normals [S, P, 3] of the planes at some points of all clouds, and squared flatness [S, P]."""
    sides, clouds, radius = pairs.sides, pairs.clouds, PATCH * pairs.voxel_size
    ends = torch.tensor(clouds.sizes).cumsum(0).tolist()
    rows = [
        torch.arange(end - own, end, EVERY) for end, own in zip(ends, clouds.sizes, strict=True)
    ]
    kept = torch.cat(rows).to(clouds.places.device)
    points, number = clouds.places[kept], len(clouds.sizes)
    cells = SortedCells(points.float(), radius, clouds.number[kept], number)
    size, width = sides.some.shape[:2]
    own = torch.arange(size, device=kept.device).repeat_interleave(width)
    variances, axes = principal_axes(points, sides.some.flatten(0, 1), cells, own)
    least, middle, most = variances.clamp(min=0).sqrt().unbind(1)
    flat = ((middle - least) / most.clamp(min=1e-12)).square().view(size, width)
    return axes[:, :, 0].view(size, width, 3), flat * sides.valid


def _met(
    pose: Tensor, pairs: PairEvidence, normals: Tensor, flat: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Points of both clouds where poses lay them, [B, P, 3] float64; of the planes that they meet
    or have the normals [B, P, 3], the gap along these, and a weight, 0 where no point is near.
    """
    some, number, reach = pairs.sides.some, len(pose), MEET * pairs.voxel_size
    placed = transform_points(torch.cat([pose, inverse(pose)]), some)  # [S, P, 3]
    gap, rows = pairs.clouds.nearest(placed, reach)
    partners = pairs.clouds.places[rows]
    points = torch.cat([placed[:number], transform_points(pose, partners[number:])], 1)
    turned = torch.cat([normals[:number] @ pose[:, :3, :3].mT, normals[number:]], 1)
    along = ((points - torch.cat([partners[:number], some[number:]], 1)) * turned).sum(2)
    meets = (gap < reach) * flat
    return points, turned, along, torch.cat([meets[:number], meets[number:]], 1)


def _inside(square: Tensor, width: float) -> Tensor:
    """One less the squares of gaps over that of a width, zero beyond it."""
    return torch.rsub(square / width**2, 1).clamp_(min=0)


def _motion(
    points: Tensor,  # [B, N, 3]
    normals: Tensor,  # [B, N, 3] of the planes that they meet
    gap: Tensor,  # [B, N] along these
    weight: Tensor,  # [B, N]
) -> Tensor:
    """Motions [B, 4, 4] of a step of least squares."""
    middle = weight[:, None] @ points / weight.sum(1)[:, None, None].clamp(min=1e-12)  # [B, 1, 3]
    turns = torch.linalg.cross(points - middle, normals)
    rows = torch.cat([turns, normals, gap[..., None]], 2)  # [B, N, 7]
    sums = (rows[..., :6] * weight[..., None]).mT @ rows  # [B, 6, 7]
    square, right = sums.split((6, 1), 2)
    held = 1e-9 * square.diagonal(dim1=1, dim2=2) + 1e-12  # what nothing holds stays
    moved = torch.linalg.solve_ex(square + torch.diag_embed(held), -right).result
    turn, shift = moved[..., 0].split(3, 1)
    half = torch.nn.functional.pad(turn / 2, (1, 0), value=1.0)
    rotation = from_quaternion(torch.nn.functional.normalize(half))
    return assembled(rotation, shift + middle[:, 0] - (rotation @ middle.mT)[..., 0])
