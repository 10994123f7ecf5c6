"""Other poses in which the source lies on the target as well: of spheres, cylinders, empty rooms.

Two kinds are looked for. Free directions: motions that leave the surface where it is, which are
eigenvectors of the normal equations of point-to-plane ICP with an eigenvalue near zero (Gelfand and
Guibas 2004, "Shape segmentation using local slippage analysis"). Turns: rotations about an axis of
the surface by multiples of 60 and 90 degrees, each refined by ICP. A pose counts when the points
that lay on the target lie on it again; a point beyond the edge of a surface, in its plane, lies on
it, so that a plane may slide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.registration.matching import drawn
from pcnn.registration.nearest import nearest_descriptors
from pcnn.registration.normals import normals_of
from pcnn.registration.rigid_fit import weighted_svd
from pcnn.registration.transforms import assembled, transform_points

#: Share of the points that must lie on the target again, and of those that may lie off it. Right
#: poses of a real scene, moved: at most 0.90 and at least 0.10; ideal shapes: 0.98 and 0.01.
AGAIN, OFF = 0.95, 0.03
#: Points of the source and the target that are looked at; those of the source that are turned, and
#: that are refined.
SOURCE, TARGET, TURNED, ALIGNED = 500, 3000, 100, 200
#: Voxels: size of a motion; distance from a surface of what lies on it; from a point of what is
#: near, and of what is lost.
MOTION, ON, NEAR, LOST = 5.0, 1.0, 2.0, 6.0
TURNS = (60, 90, 120, 180, 240, 270, 300)  # degrees
FREE, REFINED, STEPS = 3, 3, 8  # directions, turns refined, steps of their ICP
HOPEFUL = 0.5  # share of the turned points on the target that is worth refining
FEWEST = 20  # points that lie on the target, below which nothing is said


@dataclass(frozen=True, eq=False)
class Ambiguity:
    """Poses that fit as well as the one that was found."""

    free: tuple[str, ...]  # the directions in which the source can move, in words
    turns: tuple[Tensor, ...]  # [4, 4] float64 each, source to target: poses that are turned

    def __bool__(self) -> bool:
        return bool(self.free or self.turns)

    def __str__(self) -> str:
        parts = []
        if self.free:
            parts.append(f"the source can move freely: {', '.join(self.free)}")
        if self.turns:
            number = len(self.turns)
            some = "1 turned pose fits" if number == 1 else f"{number} turned poses fit"
            parts.append(f"at least {some} as well")
        return "; ".join(parts)


#: No other pose was found.
UNIQUE = Ambiguity((), ())


class _Look(NamedTuple):
    """Source points [S] in a pose, or [K, S] in several."""

    placed: Tensor  # [..., S, 3]
    nearest: Tensor  # [..., S] rows of the nearest target points
    gap: Tensor  # [..., S] distance to them
    on: Tensor  # [..., S] whether they lie on the target's surface
    lost: Tensor  # [..., S] whether no target is near


class _Surface:
    """Target points with normals."""

    def __init__(self, target: Tensor, voxel_size: float, generator: torch.Generator) -> None:
        rows = drawn(len(target), TARGET, generator)
        self.points = target[rows].double()
        self.normals = normals_of(target, target[rows], 2.5 * voxel_size)
        self.voxel_size = voxel_size
        # fewer points of a surface lie further apart
        self.step = voxel_size * math.sqrt(len(target) / len(rows))

    def look(self, transform: Tensor, source: Tensor) -> _Look:
        placed = transform_points(transform, source)
        found = nearest_descriptors(placed.flatten(0, -2), self.points)
        gap, index = (one.view(placed.shape[:-1]) for one in found)
        off = ((placed - self.points[index]) * self.normals[index]).sum(-1).abs()
        lost = gap > LOST * self.step
        return _Look(placed, index, gap, (off < ON * self.voxel_size) & ~lost, lost)

    def as_well(self, transform: Tensor, source: Tensor) -> bool:
        seen = self.look(transform, source)
        off = ~seen.on & ~seen.lost
        return float(seen.on.double().mean()) >= AGAIN and float(off.double().mean()) <= OFF


def ambiguity(
    source: Tensor, target: Tensor, transform: Tensor, voxel_size: float, seed: int = 0
) -> Ambiguity:
    """Look for other poses that fit as well as a transform."""
    generator = torch.Generator().manual_seed(seed)
    surface = _Surface(target, voxel_size, generator)
    some = source[drawn(len(source), SOURCE, generator)].double()
    # a pose by matches alone may be off by a voxel
    transform = _refined(surface, transform, some[:ALIGNED], NEAR)
    seen = surface.look(transform, some)
    lying = seen.on & (seen.gap < NEAR * surface.step)
    if int(lying.sum()) < FEWEST:
        return UNIQUE
    some, placed = some[lying], seen.placed[lying]
    normals = surface.normals[seen.nearest[lying]]
    free = _free_directions(surface, transform, some, placed, normals)
    if free:  # turns about a free axis would be found, too
        return Ambiguity(free, ())
    return Ambiguity((), _turned(surface, transform, some, placed, normals))


def _free_directions(
    surface: _Surface, transform: Tensor, source: Tensor, placed: Tensor, normals: Tensor
) -> tuple[str, ...]:
    """Motions of five voxels under which all points stay on the surface."""
    middle = placed.mean(0)
    arm = placed - middle  # [S, 3]
    length = arm.square().sum(1).mean().sqrt()
    rows = torch.cat([torch.linalg.cross(arm / length, normals), normals], 1)  # [S, 6]
    twists = torch.linalg.eigh(rows.T @ rows).eigenvectors.T
    found = []
    for twist in twists[:FREE]:
        turn, shift = twist[:3] / length, twist[3:]
        moved = (torch.linalg.cross(turn.expand_as(arm), arm) + shift).square().sum(1).mean()
        size = MOTION * surface.voxel_size / moved.sqrt()
        ways = [
            _moved(sign * size * turn, middle, sign * size * shift, transform) for sign in (1, -1)
        ]
        if all(surface.as_well(way, source) for way in ways):
            turns = length * turn.norm() > shift.norm()
            axis = twist[:3] if turns else twist[3:]
            words = ", ".join(f"{value:.2f}" for value in (axis / axis.norm()).tolist())
            found.append(f"{'turn about' if turns else 'shift along'} ({words})")
    return tuple(found)


def _turned(
    surface: _Surface, transform: Tensor, source: Tensor, placed: Tensor, normals: Tensor
) -> tuple[Tensor, ...]:
    """Poses turned about an axis of the surface in which all points lie on it."""
    middle, few = placed.mean(0), source[:ALIGNED]
    poses = [
        _moved(axis * math.radians(angle), middle, torch.zeros_like(middle), transform)
        for axis in _axes(normals)
        for angle in TURNS
    ]
    if not poses:
        return ()
    shares = surface.look(torch.stack(poses), few[:TURNED]).on.double().mean(1).tolist()
    best = sorted(range(len(poses)), key=lambda row: -shares[row])[:REFINED]
    found = [transform]
    for row in best:
        if shares[row] < HOPEFUL:
            break
        pose = _refined(surface, poses[row], few, LOST)
        # ICP may have led back to a pose that is known
        new = all(_apart(pose, one, few) > MOTION * surface.voxel_size for one in found)
        if new and surface.as_well(pose, source):
            found.append(pose)
    return tuple(found[1:])


def _refined(surface: _Surface, pose: Tensor, source: Tensor, reach: float) -> Tensor:
    """A pose after some steps of point-to-point ICP within a reach [voxels]."""
    before = None
    for _ in range(STEPS):
        seen = surface.look(pose, source)
        near = seen.gap < reach * surface.step
        # the same partners give the same pose again
        partners = torch.where(near, seen.nearest, -1)
        if int(near.sum()) < FEWEST or (before is not None and torch.equal(partners, before)):
            break
        before = partners
        pose = weighted_svd(seen.placed, surface.points[seen.nearest], near.double()) @ pose
    return pose


def _axes(normals: Tensor) -> list[Tensor]:
    """Directions that many normals [S, 3] share, at most three, and those across two of them."""
    parallel = (normals @ normals.T).abs() > math.cos(math.radians(12))
    left = torch.ones(len(normals), dtype=torch.bool)
    axes: list[Tensor] = []
    for _ in range(3):
        votes = (parallel & left).sum(1) * left
        top = int(votes.argmax())
        if int(votes[top]) < 0.05 * len(normals):
            break
        share = parallel[top] & left
        axis = (normals[share] * (normals[share] @ normals[top]).sign()[:, None]).mean(0)
        axes.append(axis / axis.norm())
        left &= ~parallel[top]
    for one in range(len(axes)):
        for other in range(one):
            across = torch.linalg.cross(axes[one], axes[other])
            across = across / across.norm()
            if all(float((across @ axis).abs()) < 0.95 for axis in axes):
                axes.append(across)
    return axes


def _moved(turn: Tensor, middle: Tensor, shift: Tensor, transform: Tensor) -> Tensor:
    """A pose, then turned by a rotation vector [3] about a point and shifted."""
    x, y, z = turn.tolist()
    cross = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    rotation: Tensor = torch.linalg.matrix_exp(cross)
    return assembled(rotation, middle - rotation @ middle + shift) @ transform


def _apart(one: Tensor, other: Tensor, points: Tensor) -> float:
    """Root mean square distance [m] of points under two transforms."""
    gap = transform_points(one, points) - transform_points(other, points)
    return float(gap.square().sum(1).mean().sqrt())
