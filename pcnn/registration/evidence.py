"""The evidence for a pose: numbers without a unit that tell right poses from wrong ones.

Support of the matches and how far they spread are two of them. Others look at the clouds where a
pose lays them: how much of what both sensors saw fits, how near surfaces lie, whether the
descriptors of places that meet are alike, and whether one cloud fills space that the other saw
through. A floor on a floor says little: surfaces of rare directions weigh more.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcnn.registration.ambiguity import normals_of
from pcnn.registration.descriptor import Described
from pcnn.registration.free_space import seen_by, share_of, surfaces
from pcnn.registration.nearest import nearest_places
from pcnn.registration.transforms import inverse, transform_points

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
REACH = 2.0  # voxels within which two points are the same place
CLEAR = 4.0  # voxels in front of a surface from which on a point is in free space
PATCH = 2.5  # voxels: radius of the patch whose normal is taken
THICK = 2.2  # voxels of matches that agree, beyond which more says nothing: noise fills volumes
PARALLEL = 0.9  # cosine from which on two normals are of one direction


def evidence(
    source: Described,
    target: Described,
    transforms: Tensor,
    ends: tuple[Tensor, Tensor],
    distance: float,
    voxel_size: float,
    view_points: bool = True,
) -> Tensor:
    """Look at poses of a pair.

    Args:
        source: described points, some hundred at least.
        target: likewise.
        transforms: [K, 4, 4] float64, source to target.
        ends: [M, 3] points of the putative matches in the source, and their partners.
        distance: of matches that agree [m].
        voxel_size: of the descriptor [m].
        view_points: whether every cloud was seen from about its origin.

    Returns:
        [K, 11] float64, the columns of `NAMES`: logarithm of the support (matches that agree, each
        less the square of its residual over the distance); of its share of all matches; mean
        distance of the descriptors of points that meet, over that of points that do not; logarithm
        of the share of the points that meet, in both clouds and in that where they are fewer; mean
        distance of points that meet in voxels; share of the points in free space of the other
        cloud; logarithm of the thickness of the matches that agree, in voxels; mean logarithm of
        the rank of the descriptor of the place that a point meets, among some of all, weighed by
        how rare the direction of its normal is, of the cloud where it is larger; mean distance of
        points from the planes that they meet, in voxels; logit of the share that meets, of points
        that the other sensor could see. Columns ``through`` and ``fits`` are NaN where no view
        point is known.
    """
    where = source.features.device
    features = [side.features for side in (source, target)]
    places = [side.points.to(where).double() for side in (source, target)]
    transforms = transforms.to(where)
    backward = inverse(transforms)
    chance = _by_chance(*features)
    shares, gaps, unlike, ranks = [], [], [], []
    planes, fits, through = [], [], []
    for one, other, poses in ((0, 1, transforms), (1, 0, backward)):
        step = max(math.ceil(len(places[one]) / SAMPLES), 1)
        some, own = places[one][::step], features[one][::step]
        normals = normals_of(places[one], some, PATCH * voxel_size)  # [P, 3]
        placed = transform_points(poses, some)  # [K, P, 3]
        gap, rows = nearest_places(placed.flatten(0, 1), places[other], REACH * voxel_size)
        gap, rows = gap.unflatten(0, placed.shape[:2]), rows.unflatten(0, placed.shape[:2])
        meets = gap < REACH * voxel_size  # [K, P]
        weight = meets.double()
        shares.append(weight.mean(1))
        gaps.append(_mean(gap.double() / voxel_size, weight, REACH))
        off = (own - features[other][rows]).norm(dim=2)
        unlike.append(_mean(off.double(), weight, REACH) / chance)
        rare = 1 / ((normals @ normals.T).abs() > PARALLEL).double().mean(1)  # [P]
        ranks.append(_mean(_log_rank(own, features[other], off), weight * rare, 0.0))
        turned = normals @ poses[:, :3, :3].mT  # [K, P, 3]
        apart = ((placed - places[other][rows]) * turned).sum(2).abs() / voxel_size
        planes.append(_mean(apart, weight, REACH))
        seen = seen_by(surfaces(places[other]), placed, CLEAR * voxel_size)
        fits.append(share_of(meets, seen.visible))
        through.append(share_of(seen.through, seen.known))
    both, fitting = torch.stack(shares), torch.stack(fits).mean(0)
    support, share, spread = _of_matches(transforms, ends, distance, voxel_size)
    columns = {
        "support": support,
        "share": share,
        "alike": torch.stack(unlike).mean(0),
        "overlap": torch.log(both.mean(0) + 0.02),
        "lesser_overlap": torch.log(both.amin(0) + 0.02),
        "gap": torch.stack(gaps).mean(0),
        "through": torch.stack(through).mean(0),
        "spread": spread,
        "rank": torch.stack(ranks).amax(0),
        "plane": torch.stack(planes).mean(0),
        "fits": torch.log((fitting + 0.02) / (1.02 - fitting)),
    }
    if not view_points:
        columns |= {name: torch.full_like(support, torch.nan) for name in ("through", "fits")}
    return torch.stack([columns[name] for name in NAMES], 1).cpu()


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


def _log_rank(own: Tensor, others: Tensor, off: Tensor) -> Tensor:
    """Logarithm [K, P] of the share of other descriptors that are nearer than those met."""
    rows = torch.linspace(0, len(others) - 1, min(RANKED, len(others))).long()
    gaps = torch.cdist(own, others[rows.to(others.device)])  # [P, R]
    nearer = (gaps < off[:, :, None]).sum(2)
    return torch.log(nearer.double() / len(rows) + 1e-3)


def _mean(values: Tensor, weight: Tensor, otherwise: float) -> Tensor:
    """Weighted mean [K] of values [K, P]; another number where no point weighs."""
    total = weight.sum(1)
    sums = torch.where(weight > 0, values * weight, 0).sum(1)  # values may be infinite elsewhere
    return torch.where(total > 0, sums / total.clamp(min=1e-12), otherwise)
