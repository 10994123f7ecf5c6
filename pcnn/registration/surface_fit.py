"""A pose is moved until surfaces that meet lie on each other: ICP, point to plane, on few points.

Matches are as exact as the cells that points are described in. Surfaces are flat over some cells,
so the distance of a point from the plane that it meets says more than that from a partner.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.evidence import MEET, PairEvidence
from pcnn.registration.rigid_fit import from_quaternion
from pcnn.registration.transforms import assembled, inverse

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
    sides, cell, clouds = pairs.sides, pairs.voxel_size, pairs.clouds
    moving, fixed, matched = pairs.ends
    number, count = len(transforms), sides.some.shape[1]
    variances, axes = clouds.axes(sides.some, PATCH * cell, EVERY)
    least, middle, most = variances.clamp(min=0).sqrt().unbind(2)
    flat = ((middle - least) / most.clamp(min=1e-12)).square() * sides.valid
    normals, held = axes[..., 0], HOLD * matched.double()
    # a match is held by three planes along the axes; the gaps of all rows follow step by step
    own = _rows(sides.some[:number], -normals[:number])
    triple = _rows(moving[:, :, None], torch.eye(3, dtype=own.dtype, device=own.device))
    rows = torch.cat([own, torch.zeros_like(own), triple.flatten(1, 2)], 1)
    asked = torch.cat([sides.some, torch.cat([moving, fixed])], 1)
    scale = own.new_full((len(WIDTHS) + 1, 2, 2 * count + moving.shape[1]), pairs.distance**-2)
    steps = torch.tensor([[WIDTHS[-1], width] for width in (*WIDTHS, WIDTHS[-1])]).double() * cell
    scale[..., : 2 * count] = steps.pow(-2)[..., None].to(own.device, non_blocking=True)
    pose = best = transforms.cpu().double()
    greatest = pose.new_full((number,), -1.0)
    for step in range(len(WIDTHS) + 1):
        both = torch.cat([pose, inverse(pose)]).to(own.device, non_blocking=True)
        turn, shift = both[:, :3, :3].mT, both[:, None, :3, 3]
        placed = torch.baddbmm(shift, asked, turn)  # [S, P + M, 3]
        gap, _, apart = clouds.nearest(placed[:, :count], MEET * cell)
        turned = normals @ turn
        along = (apart * turned).sum(2)
        gaps = moving - placed[number:, count:]  # [B, M, 3]
        meets = (gap < MEET * cell) * flat
        off = torch.cat([along[:number], along[number:], gaps.norm(dim=2)], 1).square_()
        near = torch.addcmul(own.new_ones(()), off[:, None], scale[step], value=-1).clamp_(min=0)
        weight = torch.cat([meets[:number], meets[number:], held], 1)[:, None] * near.square()
        support = weight[:, :1] @ near[:, 0, :, None]
        parts = [support.flatten(1)]
        if step < len(WIDTHS):
            met = placed[number:, :count] + apart[number:]
            rows[:, count : 2 * count] = _rows(met, turned[number:])
            rows[:, : 2 * count, 6] = torch.cat([along[:number], along[number:]], 1)
            rows[:, 2 * count :, 6] = gaps.flatten(1)
            planes, matches = weight[:, 1].split((2 * count, moving.shape[1]), 1)
            weight = torch.cat([planes, matches[..., None].expand(-1, -1, 3).flatten(1)], 1)
            parts.append(((rows * weight[..., None]).mT @ rows).flatten(1))
        # the rest is small: a host does it sooner than it asks a device for it
        found = torch.cat(parts, 1).cpu()
        better = found[:, 0] > greatest
        best = torch.where(better[:, None, None], pose, best)
        greatest = torch.where(better, found[:, 0], greatest)
        if step < len(WIDTHS):
            pose = pose @ _motion(found[:, 1:].unflatten(1, (11, 11)))
    return best.to(transforms)


def _rows(points: Tensor, normals: Tensor) -> Tensor:
    """Rows [..., 11] of least squares, of points and normals of planes in the frame of sources:
    what a turn and a shift do to the gap, room for it, the point, and a one.
    """
    points, normals = torch.broadcast_tensors(points, normals)
    turns, rest = torch.linalg.cross(points, normals), torch.ones_like(points[..., :1])
    return torch.cat([turns, normals, rest, points, rest], -1)


def _motion(sums: Tensor) -> Tensor:
    """Motions [B, 4, 4] of a step of least squares, of weighted sums [B, 11, 11] over rows."""
    middle = sums[:, 10, 7:10] / sums[:, 10, 10:].clamp(min=1e-12)  # [B, 3]
    # turns about the middle
    about = torch.eye(7, dtype=sums.dtype).repeat(len(sums), 1, 1)
    units = torch.eye(3, dtype=sums.dtype).expand(len(sums), -1, -1)
    about[:, 3:6, :3] = torch.linalg.cross(units, middle[:, None].expand_as(units))
    square, right = (about.mT @ sums[:, :7, :7] @ about)[:, :6].split((6, 1), 2)
    held = 1e-9 * square.diagonal(dim1=1, dim2=2) + 1e-12  # what nothing holds stays
    moved = torch.linalg.solve_ex(square + torch.diag_embed(held), -right).result
    turn, shift = moved[..., 0].split(3, 1)
    half = torch.nn.functional.pad(turn / 2, (1, 0), value=1.0)
    rotation = from_quaternion(torch.nn.functional.normalize(half))
    return assembled(rotation, shift + middle - (rotation @ middle[..., None])[..., 0])
