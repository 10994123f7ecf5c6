"""The evidence for a pose: numbers without a unit that tell right poses from wrong ones.

Some are of the matches. Others look at the clouds where a pose lays them: what meets, how near,
with descriptors how alike, and what fills space that the other sensor saw through.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pcnn.registration.descriptor import Described
from pcnn.registration.nearest import Nearest, SortedCells, principal_axes
from pcnn.registration.solution import on_host
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


@dataclass(frozen=True, eq=False)
class Clouds:
    """The points of several clouds, one cloud after another, and the nearest of them."""

    places: Tensor  # [N, 3] float64
    features: Tensor  # [N, C]
    sizes: Sequence[int]  # points of every cloud, on the host, so that nothing waits for a device
    radius: float  # of the cells that they are sorted by on a CPU [m]

    @staticmethod
    def of(clouds: Sequence[Described], radius: float) -> Clouds:
        features = torch.cat([cloud.features for cloud in clouds])
        places = torch.cat([cloud.points for cloud in clouds]).to(features.device).double()
        return Clouds(places, features, [len(cloud.points) for cloud in clouds], radius)

    @cached_property
    def counts(self) -> Tensor:
        """[S] int64, points of every cloud."""
        return torch.tensor(self.sizes).to(self.places.device, non_blocking=True)

    @cached_property
    def starts(self) -> Tensor:
        """[S, 1] int64, the row of the first point of every cloud."""
        return (self.counts.cumsum(0) - self.counts)[:, None]

    @cached_property
    def number(self) -> Tensor:
        """[N] int64, the cloud of every point."""
        clouds = torch.arange(len(self.sizes), device=self.places.device)
        return clouds.repeat_interleave(self.counts, output_size=len(self.places))

    @cached_property
    def cells(self) -> SortedCells:
        return SortedCells(self.places.float(), self.radius, self.number, len(self.sizes))

    def across(self, sides: Tensor) -> Tensor:
        """What [S, ...] the other cloud of every one has: targets follow their sources."""
        return sides.roll(len(self.sizes) // 2, 0)

    @cached_property
    def own(self) -> Nearest:
        """A search of every cloud by dense products."""
        rows = torch.arange(max(self.sizes), device=self.places.device)
        there = rows < self.counts[:, None]
        # in float64: products of float32 lose millimetres tens of metres from the middle
        places = self.places[self.starts + rows * there]
        return Nearest(places * there[..., None], there[..., None])

    @cached_property
    def others(self) -> tuple[Nearest, Tensor]:
        """A search of the other cloud of every one, and where that begins."""
        return self.own.rolled(len(self.sizes) // 2), self.across(self.starts)

    def nearest(self, query: Tensor, reach: float) -> tuple[Tensor, Tensor, Tensor]:
        """The points of the other clouds nearest to queries [S, Q, 3]: their distance and row
        [S, Q], and what leads there [S, Q, 3].

        On a CPU of those within reach, -1 where there is none; on a GPU of all, without a wait.
        """
        if self.places.is_cuda:
            search, start = self.others
            index = search(query) + start
            apart = self.places[index] - query
            return apart.norm(dim=2), index, apart
        flat = query.flatten(0, 1).float()
        other = self.across(torch.arange(len(query))).repeat_interleave(query.shape[1])
        distance, index = (
            one.view(query.shape[:2]) for one in self.cells.nearest(flat, reach, other)
        )
        return distance, index, self.places[index] - query

    def axes(self, places: Tensor, radius: float, every: int = 1) -> tuple[Tensor, Tensor]:
        """`principal_axes` around places [S, P, 3] of some of the points of every cloud."""
        if self.places.is_cuda:
            return self.own.axes(places, radius, every)
        points, cells = self.places, self.cells
        if every > 1:
            kept = (torch.arange(len(points)) - self.starts[self.number, 0]) % every == 0
            points, number = points[kept], self.number[kept]
            cells = SortedCells(points.float(), radius, number, len(self.sizes))
        own = torch.arange(len(places)).repeat_interleave(places.shape[1])
        found = principal_axes(points, places.flatten(0, 1), cells, own)
        return found[0].view(places.shape), found[1].view(*places.shape, 3)


class Sides(NamedTuple):
    """What no pose changes of B sources, then of their targets: S = 2 B clouds, rows padded."""

    some: Tensor  # [S, P, 3] float64, some of the points
    valid: Tensor  # [S, P] bool
    looked_at: Tensor  # [S] how many those are, on the host
    own: Tensor  # [S, P, C] their descriptors
    normals: Tensor  # [S, P, 3] float64
    rare: Tensor  # [S, P] float64, one over the share of points whose normal has the same direction
    gaps: Tensor  # [S, P, R] distances of their descriptors from some of the other cloud
    ranked: Tensor  # [S] how many those are
    chance: Tensor  # [S] mean distance of descriptors of places that have nothing in common
    seen: Surfaces | None  # of all points [S, bins], where the view point is known


@dataclass(frozen=True, eq=False)
class PairEvidence:
    """The evidence for poses of several pairs at once; what no pose changes is computed once."""

    sources: Sequence[Described]
    targets: Sequence[Described]
    ends_of: Sequence[tuple[Tensor, Tensor]]  # points of the matches of every pair
    distance: float
    voxel_size: float
    view_points: bool = True

    def __call__(self, poses: Sequence[Tensor]) -> list[Tensor]:
        """Look at poses [K, 4, 4] float64 of every pair, source to target; evidence [K, E] each."""
        counts, number = [len(some) for some in poses], len(poses)
        sides, clouds = self.sides, self.clouds
        both = pad_sequence(list(poses), batch_first=True)
        both = torch.cat([both, inverse(both)])  # [S, K, 4, 4]
        both = both.to(clouds.places.device, non_blocking=True)
        placed = transform_points(both, sides.some[:, None])  # [S, K, P, 3]
        gap, rows, apart = (
            found.unflatten(1, placed.shape[1:3])
            for found in clouds.nearest(placed.flatten(1, 2), MEET * self.voxel_size)
        )
        meets = (gap < MEET * self.voxel_size) & sides.valid[:, None]  # [S, K, P]
        off = (sides.own[:, None] - clouds.features[rows]).norm(dim=3)
        turned = sides.normals[:, None] @ both[..., :3, :3].mT  # [S, K, P, 3]
        along = (apart * turned).sum(3).abs()
        weight, rank = meets.double(), _log_rank(sides.gaps, off, sides.ranked)
        values = torch.stack([off.double(), rank, along, gap.double()])
        weights = torch.stack([weight, weight * sides.rare[:, None], weight, weight])
        # values may be infinite where nothing is met
        sums = torch.where(weights > 0, values * weights, 0).sum(3)  # [4, S, K]
        rows_of = [sums, weights.sum(3), sides.chance[:, None].expand(1, *gap.shape[:2])]
        if sides.seen is not None:
            other = Surfaces(*(clouds.across(ranges)[:, None] for ranges in sides.seen))
            known, before, visible = seen_by(other, placed, CLEAR * self.voxel_size)
            known, visible = known & sides.valid[:, None], visible & sides.valid[:, None]
            rows_of.append(torch.stack([meets & visible, before & known, visible, known]).sum(3))
        matches = _of_matches(both[:number], *self.ends, self.distance)
        # the rest is small: a host does it sooner than it asks a device for it
        found, matches = on_host(torch.cat(rows_of), matches)
        found = found.unflatten(1, (2, number))  # [9 or 13, 2, B, K]
        sums, total, chance = found[:4], found[4:8], found[8]
        otherwise = sums.new_tensor([MEET, 0.0, MEET * self.voxel_size, MEET * self.voxel_size])
        means = sums / total.clamp(min=1e-12)
        means = torch.where(total > 0, means, otherwise[:, None, None, None])
        unlike, rank, plane, gap = means
        meet = total[0] / sides.looked_at.view(2, number, 1)
        through = fitting = torch.full_like(unlike[0], torch.nan)
        if len(found) > 9:
            fitting, through = share_of(found[9:11], found[11:]).mean(1)
        support, spread = matches[..., 0], matches[..., 1:].unflatten(2, (3, 3))
        least = torch.linalg.eigvalsh(spread)[..., 0].clamp(min=0)
        thickness = (least.sqrt() / self.voxel_size).clamp(max=THICK)
        of = torch.tensor([[len(one)] for one, _ in self.ends_of])
        columns = {
            "support": torch.log1p(support),
            "share": torch.log((support + 1) / (of + 1)),
            "alike": (unlike / chance).mean(0),
            "overlap": torch.log(meet.mean(0) + 0.02),
            "lesser_overlap": torch.log(meet.amin(0) + 0.02),
            "gap": gap.mean(0) / self.voxel_size,
            "through": through,
            "spread": torch.log(thickness + 0.5),
            "rank": rank.amax(0),
            "plane": plane.mean(0) / self.voxel_size,
            "fits": torch.log((fitting + 0.02) / (1.02 - fitting)),
        }
        found = torch.stack([columns[name] for name in NAMES], 2)  # [B, K, E]
        return [one[:count] for one, count in zip(found, counts, strict=True)]

    @cached_property
    def clouds(self) -> Clouds:
        return Clouds.of([*self.sources, *self.targets], PATCH * self.voxel_size)

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points of the matches in both clouds [B, M, 3] float64, and which are matches [B, M]."""
        places = self.clouds.places
        moving, fixed = (
            pad_sequence([side.to(places) for side in sides], batch_first=True)
            for sides in zip(*self.ends_of, strict=True)
        )
        rows = torch.arange(moving.shape[1])
        counts = torch.tensor([len(one) for one, _ in self.ends_of])
        return moving, fixed, (rows < counts[:, None]).to(places.device, non_blocking=True)

    @cached_property
    def sides(self) -> Sides:
        """The parts of all clouds that no pose changes."""
        clouds = self.clouds
        sizes, device = clouds.sizes, clouds.places.device
        steps = [torch.arange(0, size, max(math.ceil(size / SAMPLES), 1)) for size in sizes]
        ranked = [torch.linspace(0, size - 1, min(RANKED, size)).long() for size in sizes]
        strange = [torch.linspace(0, size - 1, CHANCE).long() for size in sizes]
        kinds = [pad_sequence(rows, batch_first=True) for rows in (steps, ranked, strange)]
        parts = [rows.shape[1] for rows in kinds]
        rows = torch.cat(kinds, 1).to(device, non_blocking=True) + clouds.starts
        counts = torch.tensor([list(map(len, side)) for side in (steps, ranked)])[..., None]
        looked_at, counts = counts[0, :, 0], counts.to(device, non_blocking=True)  # [2, S, 1]
        some = clouds.places[rows[:, : parts[0]]]  # [S, P, 3]
        own, among, strangers = clouds.features[rows].split(parts, 1)
        valid = torch.arange(parts[0], device=device) < counts[0]
        normals = clouds.axes(some, PATCH * self.voxel_size)[1][..., 0]
        alike = ((normals @ normals.mT).abs() > PARALLEL) & valid[:, None]
        alike = alike.sum(2).double() / counts[0]
        ranks = clouds.across(counts[1])
        gaps = torch.cdist(own, clouds.across(among))
        beyond = torch.arange(parts[1], device=device) >= ranks
        gaps = gaps.masked_fill(beyond[:, None], torch.inf)
        half = len(sizes) // 2
        apart = strangers[:half] - strangers[half:].roll(CHANCE // 3, 1)
        chance = apart.norm(dim=2).double().mean(1).clamp(min=1e-9).repeat(2)
        seen = None
        if self.view_points:
            seen = surfaces(clouds.places, clouds.number, len(sizes))
        return Sides(
            some, valid, looked_at, own, normals, 1 / alike, gaps, ranks[:, 0], chance, seen
        )


def _of_matches(
    poses: Tensor, one: Tensor, other: Tensor, valid: Tensor, distance: float
) -> Tensor:
    """The support [B, K, 10] of matches, and how those that agree spread."""
    placed = transform_points(poses, one[:, None])  # [B, K, M, 3]
    near = 1 - ((placed - other[:, None]).norm(dim=3) / distance).square()
    near = torch.where(valid[:, None], near, 0.0)
    agree = (near > 0).double()  # [B, K, M]
    number = agree.sum(2).clamp(min=1)[..., None]
    middle = (agree[:, :, None] @ placed).squeeze(2) / number
    arm = (placed - middle[:, :, None]) * agree[..., None]
    spread = arm.mT @ arm / number[..., None]
    return torch.cat([near.clamp(min=0).sum(2, keepdim=True), spread.flatten(2)], 2)


def _log_rank(gaps: Tensor, off: Tensor, ranked: Tensor) -> Tensor:
    """Logarithm [S, K, P] of the share of gaps [S, P, R] that are less than those met."""
    # 0 or 1 in float32, whose sums are exact: quicker to add than truth values
    block = min(max(COMPARED // max(gaps.numel(), 1), 1), off.shape[1])
    nearer = gaps.new_empty(block, *gaps.shape)
    one = gaps.new_ones(gaps.shape[2])
    found = [
        torch.lt(gaps, some[..., None], out=nearer[: len(some)]) @ one
        for some in off.transpose(0, 1).split(block)
    ]
    share = torch.cat(found).transpose(0, 1).double() / ranked[:, None, None]
    return torch.log(share + 1e-3)


class Surfaces(NamedTuple):
    """First and last range of a cloud in bins of equal angles, seen from its origin."""

    first: Tensor  # [S, bins] range of the nearest point [m], infinite where there is none
    last: Tensor  # [S, bins] range of the farthest point


def surfaces(points: Tensor, clouds: Tensor, number: int) -> Surfaces:
    """Ranges [S, bins] of the surfaces of clouds, of points [N, 3], each from its origin."""
    bins, ranges = _directions(points)
    size = round(360 / BINS) * round(180 / BINS)
    empty = points.new_full((number * size,), torch.inf)
    first = empty.scatter_reduce(0, clouds * size + bins, ranges, "amin")
    last = torch.zeros_like(empty).scatter_reduce(0, clouds * size + bins, ranges, "amax")
    return Surfaces(first.view(number, size), last.view(number, size))


def seen_by(cloud: Surfaces, placed: Tensor, clear: float) -> tuple[Tensor, Tensor, Tensor]:
    """Which points [S, K, P, 3] have a surface of a cloud [S, 1, bins] in their direction, which of
    these lie in front of the nearest, and which not behind the farthest.
    """
    bins, ranges = _directions(placed)
    first, last = (
        side.expand(-1, bins.shape[1], -1).gather(2, bins) for side in (cloud.first, cloud.last)
    )
    known = torch.isfinite(first)
    return known, known & (ranges < first - clear), known & (ranges < last + clear)


def share_of(counted: Tensor, number: Tensor) -> Tensor:
    """Share of points that count among a number; where these are few a half: it says nothing."""
    return torch.where(number >= FEWEST, counted / number.clamp(min=1), UNKNOWN)


def _directions(points: Tensor) -> tuple[Tensor, Tensor]:
    """Bin and range [...] of points [..., 3] seen from the origin."""
    x, y, z = points.unbind(-1)
    ranges = points.norm(dim=-1)
    around = torch.rad2deg(torch.atan2(y, x)) + 180
    up = torch.rad2deg(torch.asin((z / ranges.clamp(min=1e-9)).clamp(-1, 1))) + 90
    columns, rows = round(360 / BINS), round(180 / BINS)
    column = (around / BINS).long().clamp(max=columns - 1)
    return (up / BINS).long().clamp(max=rows - 1) * columns + column, ranges
