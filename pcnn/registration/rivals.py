"""What explains a pair of clouds as well as a pose: then no rigid transform is an answer.

Three rivals are looked for. A scale and a mirror image: a rigid transform of such a copy is right
near one place only, but has inliers enough there to be believed; the solver finds clearly more for
a source that is scaled or mirrored first. Other poses in which the source lies on the target as
well, of spheres, cylinders and empty rooms: free directions are motions that leave the surface
where it is, eigenvectors of the normal equations of point-to-plane ICP with an eigenvalue near zero
(Gelfand and Guibas 2004, local slippage analysis); turns are rotations about an axis of the surface
by multiples of 60 and 90 degrees, each refined. A pose counts when the points that lay on the
target lie on it again; a point beyond the edge of a surface, in its plane, lies on it, so that a
plane may slide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.registration.matching import drawn
from pcnn.registration.nearest import nearest_descriptors
from pcnn.registration.normals import normals_of
from pcnn.registration.ransac import ransac
from pcnn.registration.rigid_fit import weighted_svd
from pcnn.registration.settings import RansacSettings
from pcnn.registration.transforms import assembled, transform_points

#: Share by which sizes may differ: depth cameras are off by one or two hundredths; largest factor
#: between sizes that are told.
SAME_SIZE, LARGEST = 0.03, 2.0
#: Inliers of the other model over those of the rigid one. Of 31 right pairs of a real scene none
#: had more than 1.32 with a scale of its own, and none with 60 inliers more than 0.63 mirrored.
CLEARLY = 1.5
FLOOR = 25  # inliers that a rival is held against where a pose has fewer
FEWEST_TRIED, MOST_TRIED = 5_000, 15_000  # hypotheses of each
TRIPLES, ALIKE, BIN = 50_000, 0.9, 0.02  # for a scale: draws, ratio of ratios, width of logarithms

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
class Rivals:
    """Models beside a rigid transform, and the matches that agree with them; other poses."""

    scale: float = math.nan  # size of the target over that of the source
    scaled: int = 0  # inliers of a rigid transform of the scaled source
    mirrored: int = 0  # of a mirror image of the source
    free: tuple[str, ...] = ()  # directions in which the source can move, in words
    turns: tuple[Tensor, ...] = ()  # [4, 4] float64 each, source to target: poses that are turned

    def not_rigid(self, inliers: int) -> str:
        """Why a rigid transform with this many inliers is wrong; empty where nothing says so."""
        least = CLEARLY * max(inliers, FLOOR)
        agree = f"matches agree with that, {inliers} with a rigid transform"
        if self.scaled > least and abs(self.scale - 1) > SAME_SIZE:
            size = f"the target is {self.scale:.2f} times as large as the source"
            return f"{size}: {self.scaled} {agree}"
        if self.mirrored > least:
            return f"one cloud is a mirror image of the other: {self.mirrored} {agree}"
        return ""

    @property
    def ambiguity(self) -> str:
        """Which other poses fit as well, in words; empty where none does."""
        if self.free:
            return f"the source can move freely: {', '.join(self.free)}"
        number = len(self.turns)
        some = "1 turned pose fits" if number == 1 else f"{number} turned poses fit"
        return f"at least {some} as well" if number else ""


def rivals_of_matches(
    source: Tensor,  # [M, 3] points of the matches in the source [m]
    target: Tensor,  # [M, 3] their partners
    settings: RansacSettings,  # of the rigid transform
    tried: int,  # its hypotheses: a model with more inliers needs no more, within bounds of time
    seed: int = 0,
) -> Rivals:
    """Estimate the scale and the mirror image that most matches agree with.

    Any mirror image is a point reflection and a rotation.
    """
    most = min(max(tried, FEWEST_TRIED), MOST_TRIED)
    settings = replace(settings, hypotheses=most, confidence=0.999)
    scale, scaled = scale_of(source, target, seed), 0
    mirrored = ransac(-source, target, settings, seed)
    if abs(scale - 1) > SAME_SIZE:
        found = ransac(scale * source, target, settings, seed).inliers
        scaled = int(found.sum())
        if scaled >= 3:
            widths = [_width(side[found.to(side.device)]) for side in (source, target)]
            scale = widths[1] / max(widths[0], 1e-12)
    return Rivals(scale, scaled, int(mirrored.inliers.sum()))


def scale_of(source: Tensor, target: Tensor, seed: int = 0) -> float:
    """The scale at which most triples of matches have triangles of one shape; NaN where none has.

    Right matches agree on one scale, wrong ones on any.
    """
    if len(source) < 3:
        return math.nan
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(len(source), (TRIPLES, 3), generator=generator).to(source.device)
    edges = [(side[rows] - side[rows.roll(1, 1)]).norm(dim=2) for side in (source, target)]
    logs = torch.log(edges[1].clamp(min=1e-9) / edges[0].clamp(min=1e-9)).double()  # [T, 3]
    alike = logs.amax(1) - logs.amin(1) < -2 * math.log(ALIKE)
    alike &= (edges[0].amin(1) > 0) & (edges[1].amin(1) > 0)
    mean = logs.mean(1)
    limit = math.log(LARGEST) + 2 * BIN
    mean = mean[alike & (mean.abs() < limit)].cpu()
    if not len(mean):
        return math.nan
    bins = round(2 * limit / BIN)
    counts = torch.histc(mean, bins, -limit, limit)
    near = torch.nn.functional.conv1d(counts[None, None], counts.new_ones(1, 1, 3), padding=1)
    top = limit * ((2 * int(near.argmax()) + 1) / bins - 1)
    return math.exp(float(mean[(mean - top).abs() < 1.5 * BIN].median()))


def _width(points: Tensor) -> float:
    """Root mean square distance [m] of points [P, 3] from their middle."""
    return float((points - points.mean(0)).double().square().sum(1).mean().sqrt())


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


def with_other_poses(
    rivals: Rivals,
    source: Tensor,
    target: Tensor,
    transform: Tensor,
    voxel_size: float,
    seed: int = 0,
) -> Rivals:
    """Look for other poses of described points [P, 3] that fit as well as a transform."""
    generator = torch.Generator().manual_seed(seed)
    surface = _Surface(target, voxel_size, generator)
    some = source[drawn(len(source), SOURCE, generator)].double()
    # a pose by matches alone may be off by a voxel
    transform = _refined(surface, transform, some[:ALIGNED], NEAR)
    seen = surface.look(transform, some)
    lying = seen.on & (seen.gap < NEAR * surface.step)
    if int(lying.sum()) < FEWEST:
        return rivals
    some, placed = some[lying], seen.placed[lying]
    normals = surface.normals[seen.nearest[lying]]
    free = _free_directions(surface, transform, some, placed, normals)
    if free:  # turns about a free axis would be found, too
        return replace(rivals, free=free)
    return replace(rivals, turns=_turned(surface, transform, some, placed, normals))


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
