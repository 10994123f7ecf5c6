"""The evidence for a pose: numbers without a unit that tell right poses from wrong ones.

Support of the matches is one of them. Others look at the clouds where a pose lays them: how much of
one lies on the other, how near, whether the descriptors of places that meet are alike, and whether
one cloud fills space that the other saw through.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcnn.registration.descriptor import Described
from pcnn.registration.nearest import nearest_places
from pcnn.registration.transforms import inverse, transform_points

#: Names of the numbers, in the order of the columns.
NAMES = ("support", "share", "alike", "overlap", "lesser_overlap", "gap", "through")
#: Whether more of a number speaks for a pose (1) or against it (-1).
SIGNS = (1, 1, -1, 1, 1, -1, -1)
SAMPLES = 256  # points of each cloud that are looked at
REACH = 2.0  # voxels within which two points are the same place
BINS = 3.0  # degrees of a direction
CLEAR = 4.0  # voxels in front of a surface from which on a point is in free space
FEWEST = 20  # points in directions that the other cloud knows, below which free space says nothing


def evidence(
    source: Described,
    target: Described,
    transforms: Tensor,
    support: Tensor,
    matches: int,
    voxel_size: float,
    view_points: bool = True,
) -> Tensor:
    """Look at poses of a pair.

    Args:
        source: described points, some hundred at least.
        target: likewise.
        transforms: [K, 4, 4] float64, source to target.
        support: [K] matches that agree, each less the square of its residual over the distance.
        matches: putative ones.
        voxel_size: of the descriptor [m].
        view_points: whether every cloud was seen from about its origin.

    Returns:
        [K, 7] float64, the columns of `NAMES`: logarithm of the support; of its share of all
        matches; mean distance of the descriptors of points that meet, over that of points that do
        not; logarithm of the share of the points that meet, in both clouds and in that where they
        are fewer; mean distance of points that meet in voxels; share of the points in free space
        of the other cloud, NaN where no view point is known.
    """
    features = [side.features for side in (source, target)]
    places = [side.points.to(source.features.device).double() for side in (source, target)]
    transforms, support = transforms.to(places[0].device), support.to(places[0].device)
    strides = [max(math.ceil(len(points) / SAMPLES), 1) for points in places]
    backward = inverse(transforms)
    chance = _by_chance(*features)
    shares, gaps, unlike, through = [], [], [], []
    for one, other, poses in ((0, 1, transforms), (1, 0, backward)):
        some, step = places[one][:: strides[one]], strides[one]
        placed = transform_points(poses, some)  # [K, P, 3]
        gap, rows = nearest_places(placed.flatten(0, 1), places[other], REACH * voxel_size)
        gap, rows = gap.unflatten(0, placed.shape[:2]), rows.unflatten(0, placed.shape[:2])
        meets = gap < REACH * voxel_size  # [K, P]
        off = (features[one][::step] - features[other][rows]).norm(dim=2)
        shares.append(meets.double().mean(1))
        means = _means(torch.stack([gap, off]), meets)
        gaps.append(means[0] / voxel_size)
        unlike.append(means[1] / chance)
        through.append(_through(placed, places[other], CLEAR * voxel_size))
    both = torch.stack(shares)  # [2, K]
    seen_through = torch.stack(through).mean(0)
    columns = torch.stack(
        [
            torch.log1p(support.double()),
            torch.log((support.double() + 1) / (matches + 1)),
            torch.stack(unlike).mean(0),
            torch.log(both.mean(0) + 0.02),
            torch.log(both.amin(0) + 0.02),
            torch.stack(gaps).mean(0),
            seen_through if view_points else torch.full_like(seen_through, torch.nan),
        ],
        1,
    )
    return columns.cpu()


def _by_chance(source: Tensor, target: Tensor) -> Tensor:
    """Mean distance of descriptors of places that have nothing to do with each other."""
    rows = [torch.linspace(0, len(side) - 1, SAMPLES).long() for side in (source, target)]
    one, other = source[rows[0].to(source.device)], target[rows[1].to(source.device)]
    return (one - other.roll(SAMPLES // 3, 0)).norm(dim=1).double().mean().clamp(min=1e-9)


def _means(values: Tensor, counted: Tensor) -> Tensor:
    """Means [V, K] of the counted values [V, K, P]; of points that do not meet where none is."""
    total = torch.where(counted, values, 0).double().sum(2)
    number = counted.sum(1)
    return torch.where(number > 0, total / number.clamp(min=1), REACH)


def _through(placed: Tensor, points: Tensor, clear: float) -> Tensor:
    """Share [K] of placed points [K, P, 3] that lie in front of the first surface of a cloud."""
    # directions and ranges are those from the origin of the cloud, in bins of equal angles; the
    # share is a half, which says nothing, where few directions are shared
    nearest = points.new_full((_bins(),), torch.inf)
    bins, ranges = _directions(torch.cat([points, placed.flatten(0, 1)]))
    own = len(points)
    nearest.scatter_reduce_(0, bins[:own], ranges[:own], "amin")
    first = nearest[bins[own:]].view(placed.shape[:2])  # [K, P]
    ranges = ranges[own:].view_as(first)
    known = torch.isfinite(first)
    free = known & (ranges < first - clear)
    number = known.sum(1)
    share = free.sum(1).double() / number.clamp(min=1)
    return torch.where(number >= FEWEST, share, 0.5)


def _bins() -> int:
    return round(360 / BINS) * round(180 / BINS)


def _directions(points: Tensor) -> tuple[Tensor, Tensor]:
    """Bin and range [...] of points [..., 3] seen from the origin."""
    x, y, z = points.unbind(-1)
    ranges = points.norm(dim=-1)
    around = torch.rad2deg(torch.atan2(y, x)) + 180
    up = torch.rad2deg(torch.asin((z / ranges.clamp(min=1e-9)).clamp(-1, 1))) + 90
    columns, rows = round(360 / BINS), round(180 / BINS)
    column = (around / BINS).long().clamp(max=columns - 1)
    return (up / BINS).long().clamp(max=rows - 1) * columns + column, ranges
