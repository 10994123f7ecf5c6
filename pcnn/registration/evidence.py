"""The evidence for a pose: numbers without a unit that tell right poses from wrong ones.

Support of the matches and how far they spread are two of them. Others look at the clouds where a
pose lays them: how much of what both sensors saw fits, how near surfaces lie, whether the
descriptors of places that meet are alike, and whether one cloud fills space that the other saw
through. A floor on a floor says little: surfaces of rare directions weigh more.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.registration.cell_search import SortedCells
from pcnn.registration.descriptor import Described
from pcnn.registration.nearest import NearestPlaces
from pcnn.registration.normals import normals_of
from pcnn.registration.transforms import inverse, transform_points

#: Raised where a number of `NAMES` changes its meaning: what was fitted before no longer fits.
VERSION = 2
#: Names of the numbers, in the order of the columns.
NAMES = (
    "support",
    "share",
    "alike",
    "overlap",
    "lesser_overlap",
    "gap",
    "through",
    "spread",
    "rank",
    "plane",
    "fits",
)
#: Whether more of a number speaks for a pose (1) or against it (-1).
SIGNS = (1, 1, -1, 1, 1, -1, -1, 1, -1, -1, 1)
SAMPLES = 512  # points of each cloud that are looked at
RANKED = 1000  # descriptors of the other cloud among which that of a place has its rank
CHANCE = 256  # pairs of descriptors whose mean distance is that by chance
MEET = 2.0  # voxels within which two points are the same place
CLEAR = 4.0  # voxels in front of a surface from which on a point is in free space
PATCH = 2.5  # voxels: radius of the patch whose normal is taken
THICK = 2.2  # voxels of matches that agree, beyond which more says nothing: noise fills volumes
COMPARED = 1 << 20  # descriptors at once: those of a block stay in a CPU's cache
PARALLEL = 0.9  # cosine from which on two normals are of one direction
BINS = 3.0  # degrees of a direction
FEWEST = 20  # points in directions that a cloud knows, below which free space says nothing
UNKNOWN = 0.5  # share in their place


class PairEvidence:
    """The evidence for poses of one pair.

    It looks at some points of each cloud. All that no pose changes is computed once, at the first
    pose: normals, distances of descriptors, the order in which neighbours are searched.
    """

    def __init__(
        self,
        source: Described,
        target: Described,
        ends: tuple[Tensor, Tensor],
        distance: float,
        voxel_size: float,
        view_points: bool = True,
    ) -> None:
        self._described = source, target
        self.ends, self.distance, self.voxel_size = ends, distance, voxel_size
        self._view_points = view_points

    def __call__(self, transforms: Tensor) -> Tensor:
        """Look at poses [K, 4, 4] float64, source to target."""
        transforms = transforms.to(self._described[0].features.device)
        source, target = self.sides
        sides = [
            self._of_side(source, target, transforms),
            self._of_side(target, source, inverse(transforms)),
        ]
        support, share, spread = _of_matches(transforms, self.ends, self.distance, self.voxel_size)
        meet, gap, unlike, rank, plane, fits, through = map(torch.stack, zip(*sides, strict=True))
        fitting = fits.mean(0)
        columns = {
            "support": support,
            "share": share,
            "alike": unlike.mean(0),
            "overlap": torch.log(meet.mean(0) + 0.02),
            "lesser_overlap": torch.log(meet.amin(0) + 0.02),
            "gap": gap.mean(0),
            "through": through.mean(0),
            "spread": spread,
            "rank": rank.amax(0),
            "plane": plane.mean(0),
            "fits": torch.log((fitting + 0.02) / (1.02 - fitting)),
        }
        return torch.stack([columns[name] for name in NAMES], 1).cpu()

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        """The parts of source and target that no pose changes."""
        source, target = self._described
        return self._side(source, target), self._side(target, source)

    @cached_property
    def _chance(self) -> Tensor:
        source, target = self._described
        return _by_chance(source.features, target.features)

    def _side(self, described: Described, other: Described) -> Side:
        features = described.features
        places = described.points.to(features.device).double()
        step = max(math.ceil(len(places) / SAMPLES), 1)
        some, own = places[::step], features[::step]
        # a GPU searches all points at once, and sorts them for the normals alone
        cells = None if places.is_cuda else SortedCells(places.float(), PATCH * self.voxel_size)
        normals = normals_of(places, some, PATCH * self.voxel_size, cells)
        cosines = (normals @ normals.T).abs_()
        alike = torch.gt(cosines, PARALLEL, out=torch.empty_like(cosines)).mean(1)
        rows = torch.linspace(0, len(other.features) - 1, min(RANKED, len(other.features))).long()
        gaps = torch.cdist(own, other.features[rows.to(features.device)])
        nearest = NearestPlaces(places, MEET * self.voxel_size, cells)
        seen = surfaces(places) if self._view_points else None
        return Side(some, own, normals, 1 / alike, gaps, places, features, nearest, seen)

    def _of_side(self, one: Side, other: Side, poses: Tensor) -> tuple[Tensor, ...]:
        """Numbers [K] of the points of one cloud, laid into the other by poses."""
        placed = transform_points(poses, one.some)  # [K, P, 3]
        gap, rows = (
            found.unflatten(0, placed.shape[:2]) for found in other.nearest(placed.flatten(0, 1))
        )
        meets = gap < MEET * self.voxel_size  # [K, P]
        weight = meets.double()
        off = (one.own - other.features[rows]).norm(dim=2)
        turned = one.normals @ poses[:, :3, :3].mT  # [K, P, 3]
        apart = ((placed - other.places[rows]) * turned).sum(2).abs() / self.voxel_size
        fits = through = weight.new_full((len(weight),), torch.nan)
        if other.seen is not None:
            seen = seen_by(other.seen, placed, CLEAR * self.voxel_size)
            fits, through = share_of(meets, seen.visible), share_of(seen.through, seen.known)
        return (
            weight.mean(1),
            _mean(gap.double() / self.voxel_size, weight, MEET),
            _mean(off.double(), weight, MEET) / self._chance,
            _mean(_log_rank(one.gaps, off), weight * one.rare, 0.0),
            _mean(apart, weight, MEET),
            fits,
            through,
        )


class Side(NamedTuple):
    """The parts of a cloud that no pose changes: some points, and all that others may meet."""

    some: Tensor  # [P, 3] float64, some of the points
    own: Tensor  # [P, C] their descriptors
    normals: Tensor  # [P, 3] float64
    rare: Tensor  # [P] float64, one over the share of points whose normal has the same direction
    gaps: Tensor  # [P, R] distances of their descriptors from some of the other cloud
    places: Tensor  # [N, 3] float64, all points
    features: Tensor  # [N, C]
    nearest: NearestPlaces  # among all points
    seen: Surfaces | None  # of all points, where the view point is known


def _of_matches(
    transforms: Tensor, ends: tuple[Tensor, Tensor], distance: float, voxel_size: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Logarithms [K] of the support, its share, and the thickness of the matches that agree."""
    one, other = (side.to(transforms.device).double() for side in ends)
    placed = transform_points(transforms, one)  # [K, M, 3]
    near = 1 - ((placed - other).norm(dim=2) / distance).square()
    support = near.clamp(min=0).sum(1)
    agree = (near > 0).double()  # [K, M]
    number = agree.sum(1).clamp(min=1)
    middle = (agree[:, None] @ placed).squeeze(1) / number[:, None]
    arm = (placed - middle[:, None]) * agree[:, :, None]
    least = torch.linalg.eigvalsh(arm.mT @ arm / number[:, None, None])[:, 0].clamp(min=0)
    thickness = (least.sqrt() / voxel_size).clamp(max=THICK)
    share = torch.log((support + 1) / (len(one) + 1))
    return torch.log1p(support), share, torch.log(thickness + 0.5)


def _by_chance(source: Tensor, target: Tensor) -> Tensor:
    """Mean distance of descriptors of places that have nothing to do with each other."""
    rows = [torch.linspace(0, len(side) - 1, CHANCE).long() for side in (source, target)]
    one, other = source[rows[0].to(source.device)], target[rows[1].to(source.device)]
    return (one - other.roll(CHANCE // 3, 0)).norm(dim=1).double().mean().clamp(min=1e-9)


def _log_rank(gaps: Tensor, off: Tensor) -> Tensor:
    """Logarithm [K, P] of the share of gaps [P, R] that are less than those met [K, P]."""
    # 0 or 1 in float32, whose sums are exact: quicker to add than truth values
    block = min(max(COMPARED // gaps.numel(), 1), len(off))
    nearer = gaps.new_empty(block, *gaps.shape)
    one = gaps.new_ones(gaps.shape[1])
    found = [
        torch.lt(gaps, some[:, :, None], out=nearer[: len(some)]) @ one for some in off.split(block)
    ]
    return torch.log(torch.cat(found).double() / gaps.shape[1] + 1e-3)


def _mean(values: Tensor, weight: Tensor, otherwise: float) -> Tensor:
    """Weighted mean [K] of values [K, P]; another number where no point weighs."""
    total = weight.sum(1)
    sums = torch.where(weight > 0, values * weight, 0).sum(1)  # values may be infinite elsewhere
    return torch.where(total > 0, sums / total.clamp(min=1e-12), otherwise)


class Surfaces(NamedTuple):
    """First and last range of a cloud in bins of equal angles, seen from its origin."""

    first: Tensor  # [B] range of the nearest point [m], infinite where there is none
    last: Tensor  # [B] range of the farthest point


class Seen(NamedTuple):
    """How points lie to the surfaces of a cloud."""

    known: Tensor  # [..., P] whether the cloud has a surface in the direction of a point
    through: Tensor  # [..., P] whether the point lies in front of it
    visible: Tensor  # [..., P] whether it has a surface there, and not only in front of the point


def surfaces(points: Tensor) -> Surfaces:
    """Ranges of the surfaces of a cloud [N, 3], from its origin."""
    bins, ranges = _directions(points)
    empty = points.new_full((round(360 / BINS) * round(180 / BINS),), torch.inf)
    first = empty.scatter_reduce(0, bins, ranges, "amin")
    return Surfaces(first, torch.zeros_like(empty).scatter_reduce(0, bins, ranges, "amax"))


def seen_by(cloud: Surfaces, placed: Tensor, clear: float) -> Seen:
    """Points [..., P, 3] as the sensor of a cloud saw their places."""
    bins, ranges = _directions(placed)
    first, last = cloud.first[bins], cloud.last[bins]
    known = torch.isfinite(first)
    return Seen(known, known & (ranges < first - clear), known & (ranges < last + clear))


def share_of(counted: Tensor, among: Tensor) -> Tensor:
    """Share [K] of points [K, P] among some; a half, which says nothing, where these are few."""
    number = among.sum(1)
    share = (counted & among).sum(1).double() / number.clamp(min=1)
    return torch.where(number >= FEWEST, share, UNKNOWN)


def _directions(points: Tensor) -> tuple[Tensor, Tensor]:
    """Bin and range [...] of points [..., 3] seen from the origin."""
    x, y, z = points.unbind(-1)
    ranges = points.norm(dim=-1)
    around = torch.rad2deg(torch.atan2(y, x)) + 180
    up = torch.rad2deg(torch.asin((z / ranges.clamp(min=1e-9)).clamp(-1, 1))) + 90
    columns, rows = round(360 / BINS), round(180 / BINS)
    column = (around / BINS).long().clamp(max=columns - 1)
    return (up / BINS).long().clamp(max=rows - 1) * columns + column, ranges
