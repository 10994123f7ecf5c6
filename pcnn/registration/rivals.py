"""What explains a pair of clouds as well as a pose: then no rigid transform is an answer.

Rivals of a pose are, of the matches, a scaled and a mirrored source with clearly more inliers; of
the surfaces, other poses on which the points lie on the target again: the pose moved along the
directions in which ICP has least hold (Gelfand and Guibas 2004, local slippage analysis), or turned
about axes of the surface by multiples of 60 and 90 degrees, then refined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor
from torch.nn.functional import pad

from pcnn.messages import counted
from pcnn.metrics.registration.errors import point_rmse
from pcnn.registration.matching import drawn
from pcnn.registration.nearest import Nearest, axes_around
from pcnn.registration.ransac import ransac
from pcnn.registration.rigid_fit import from_quaternion, turned_onto
from pcnn.registration.settings import RansacSettings
from pcnn.registration.transforms import assembled, whole

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
    poses: tuple[Tensor, ...] = ()  # [4, 4] float64 each, source to target, that fit as well

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
        """How many other poses fit as well, in words; empty where none does."""
        return f"{counted(len(self.poses), 'other pose')} or more fit as well" if self.poses else ""


def rivals_of_matches(
    source: Tensor,  # [M, 3] points of the matches in the source [m]
    target: Tensor,  # [M, 3] their partners
    settings: RansacSettings,  # of the rigid transform
    tried: int,  # its hypotheses: a model with more inliers needs no more, within bounds of time
    seed: int = 0,
) -> Rivals:
    """The scale that most matches agree with, and the mirror image: a reflection and a rotation."""
    most = min(max(tried, FEWEST_TRIED), MOST_TRIED)
    settings = replace(settings, hypotheses=most, confidence=0.999)
    scale, scaled = scale_of(source, target, seed), 0
    mirrored = ransac(-source, target, settings, seed)
    if abs(scale - 1) > SAME_SIZE:
        found = ransac(scale * source, target, settings, seed).inliers
        scaled = int(found.sum())
        if scaled >= 3:
            agree = (side[found.to(side.device)] for side in (source, target))
            widths = [float((one - one.mean(0)).double().square().sum().sqrt()) for one in agree]
            scale = widths[1] / max(widths[0], 1e-12)
    return Rivals(scale, scaled, int(mirrored.inliers.sum()))


def scale_of(source: Tensor, target: Tensor, seed: int = 0) -> float:
    """The scale at which most triples of matches have triangles of one shape; NaN of none."""
    if len(source) < 3:
        return math.nan
    device = source.device
    generator = torch.Generator(device).manual_seed(seed)
    rows = torch.randint(len(source), (TRIPLES, 3), generator=generator, device=device)
    corners = torch.stack([source, target], 1)[rows]  # [T, 3, 2, 3]
    edges = (corners - corners.roll(1, 1)).norm(dim=3)
    one, other = edges.clamp(min=1e-9).unbind(2)
    logs = torch.log(other / one).double()  # [T, 3]
    alike = logs.amax(1) - logs.amin(1) < -2 * math.log(ALIKE)
    alike &= edges.amin((1, 2)) > 0
    limit = math.log(LARGEST) + 2 * BIN
    mean = torch.where(alike, logs.mean(1), torch.inf).cpu()
    mean = mean[mean.abs() < limit]
    if not len(mean):
        return math.nan
    bins = round(2 * limit / BIN)
    counts = torch.histc(mean, bins, -limit, limit)
    near = pad(counts, (1, 1)).unfold(0, 3, 1).sum(1)
    top = limit * ((2 * int(near.argmax()) + 1) / bins - 1)
    return math.exp(float(mean[(mean - top).abs() < 1.5 * BIN].median()))


class _Surface:
    """Target points with normals."""

    def __init__(self, target: Tensor, voxel_size: float, generator: torch.Generator) -> None:
        rows = drawn(len(target), TARGET, generator).to(target.device, non_blocking=True)
        some = target[rows]
        self.search = Nearest(some.float()[None])
        normals = axes_around(target, some, 2.5 * voxel_size)[1][:, :, 0]
        # a point, 1, its normal
        self.points = torch.cat([some, torch.ones_like(some[:, :1]), normals], 1)
        self.voxel_size = voxel_size
        # fewer points of a surface lie further apart
        self.step = voxel_size * math.sqrt(len(target) / len(rows))

    def nearest(self, poses: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where poses [K, 3, 4] put source points [S, 4], the nearest rows [K, S, 7], the gaps."""
        placed = source @ poses.mT
        index = self.search(placed.float().reshape(1, -1, 3)).view(placed.shape[:2])
        met = self.points[index]
        return placed, met, placed - met[..., :3]

    def look(self, poses: Tensor, source: Tensor, reach: float = LOST) -> tuple[Tensor, ...]:
        """Which points [K, S] lie on the surface, and which on it or beside it within a reach
        [voxels]; where they are, and the nearest rows.
        """
        placed, met, away = self.nearest(poses, source)
        near = away.norm(dim=2) <= reach * self.step
        on = (away * met[..., 4:]).sum(2).abs() < ON * self.voxel_size
        return on & near, near, placed, met

    def counts(self, poses: Tensor, source: Tensor) -> Tensor:
        """How many points [2, K] lie on the surface, and how many on it or beside it."""
        return torch.stack(self.look(poses, source)[:2]).sum(2)

    def refined(self, poses: Tensor, source: Tensor) -> Tensor:
        """Poses [K, 3, 4] after some steps of point-to-point ICP."""
        for _ in range(STEPS):
            _, met, away = self.nearest(poses, source)
            near = away.norm(dim=2, keepdim=True) < LOST * self.step
            sums = met[..., :4].mT @ (near * source)  # [K, 4, 4] of partners and points
            total = sums[:, 3:, 3:]
            means = sums / total.clamp(min=1e-12)
            to, of = means[:, :3, 3:], means[:, 3:, :3]
            covariance = torch.baddbmm(means[:, :3, :3], to, of, alpha=-1)
            moved = turned_onto(covariance, of[:, 0], to[..., 0])
            poses = torch.where(total >= FEWEST, moved, poses)
        return poses


def _as_well(counts: Tensor, number: int) -> Tensor:
    """Which poses [K] put so many points on the target, and hardly one beside it."""
    on, near = counts.double()
    return (on / number >= AGAIN) & ((near - on) / number <= OFF)


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
    rows = drawn(len(source), SOURCE, generator).to(source.device, non_blocking=True)
    some = pad(source[rows].double(), (0, 1), value=1.0)  # [S, 4]
    start = transform.cpu().double()[None]
    on, _, placed, met = surface.look(start[:, :3].to(some.device, non_blocking=True), some, NEAR)
    # what is small goes on on the host
    seen = torch.cat([on[0, :, None], placed[0], met[0, :, 4:], some[:, :3]], 1).cpu()
    lying = seen[:, 0].nonzero()[:, 0]
    if len(lying) < FEWEST:
        return rivals
    _, placed, normals, points = seen[lying].split((1, 3, 3, 3), 1)
    some = some[lying.to(some.device, non_blocking=True)]
    few, points = some[:ALIGNED], points[:ALIGNED]
    moved = MOTION * voxel_size
    slid = _slides(placed, normals, moved) @ start
    turned = _turns(placed.mean(0), normals) @ start
    poses = torch.cat([slid, turned])[:, :3].to(some.device, non_blocking=True)
    looks = (poses[: len(slid)], some), (poses[len(slid) :], few[:TURNED])
    counts = torch.cat([surface.counts(*look) for look in looks], 1).cpu()
    fits = _as_well(counts[:, : len(slid)], len(some)).view(-1, 2).all(1).repeat_interleave(2)
    if fits.any():  # turns about a free axis would be found, too
        return replace(rivals, poses=tuple(slid[fits]))
    share = counts[0, len(slid) :].double() / len(few[:TURNED])
    best = share.argsort(descending=True)[:REFINED]
    best = best[share[best] >= HOPEFUL]
    if not len(best):
        return rivals
    poses = surface.refined(turned[best, :3].to(some.device, non_blocking=True), few)
    both = torch.cat([poses.flatten(1), surface.counts(poses, some).T], 1).cpu()
    others = list(start)
    for pose in whole(both[:, :12].unflatten(1, (3, 4)))[_as_well(both[:, 12:].T, len(some))]:
        # ICP may have led back to a pose that is known
        if all(point_rmse(pose, one, points) > moved for one in others):
            others.append(pose)
    return replace(rivals, poses=tuple(others[1:]))


def _slides(placed: Tensor, normals: Tensor, size: float) -> Tensor:
    """Motions [K, 4, 4], there and back by a size [m], along what ICP has least hold on."""
    middle = placed.mean(0)
    arm = placed - middle  # [S, 3]
    length = arm.square().sum(1).mean().sqrt()
    rows = torch.cat([torch.linalg.cross(arm / length, normals), normals], 1)  # [S, 6]
    twists = torch.linalg.eigh(rows.T @ rows).eigenvectors.T[:FREE]
    turns, shifts = twists[:, None, :3] / length, twists[:, None, 3:]  # [FREE, 1, 3]
    moved = torch.linalg.cross(turns.expand(-1, len(arm), -1), arm.expand(FREE, -1, -1)) + shifts
    ways = size / moved.square().sum(2).mean(1).sqrt()[:, None, None] * torch.tensor([[1.0], [-1]])
    return _motions((ways * turns).flatten(0, 1), middle, (ways * shifts).flatten(0, 1))


def _turns(middle: Tensor, normals: Tensor) -> Tensor:
    """Turns [K, 4, 4] about directions that many normals [S, 3] share, and across two of them."""
    parallel = ((normals @ normals.T).abs_() > math.cos(math.radians(12))).float()
    left = torch.ones_like(parallel[0])  # 1 of a normal of no axis yet; sums of floats are quick
    axes: list[Tensor] = []
    for _ in range(3):
        votes = (parallel @ left) * left
        top = int(votes.argmax())
        if int(votes[top]) < 0.05 * len(normals):
            break
        share = (parallel[top] * left).to(normals) * (normals @ normals[top]).sign()
        axes.append(share @ normals / votes[top])
        left = left * (1 - parallel[top])
    axes += [torch.linalg.cross(one, other) for one, other in combinations(axes, 2)]
    if not axes:
        return torch.eye(4, dtype=middle.dtype)[None]
    units = torch.nn.functional.normalize(torch.stack(axes))
    turns = units[:, None] * torch.tensor(TURNS).to(units).deg2rad()[:, None]
    return _motions(turns.flatten(0, 1), middle, torch.zeros_like(middle))


def _motions(turns: Tensor, middle: Tensor, shifts: Tensor) -> Tensor:
    """Turns by rotation vectors [K, 3] about a point, then shifts."""
    angles = turns.norm(dim=1, keepdim=True)
    halves = torch.cat([torch.cos(angles / 2), turns * torch.sinc(angles / (2 * math.pi)) / 2], 1)
    rotations = from_quaternion(halves)
    return assembled(rotations, middle - rotations @ middle + shifts)
