"""Space that the sensor of a cloud saw through, by the range of its surfaces in every direction."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BINS = 3.0  # degrees of a direction
FEWEST = 20  # points in directions that a cloud knows, below which free space says nothing
UNKNOWN = 0.5  # share in their place


class Surfaces(NamedTuple):
    """First and last range of a cloud in bins of equal angles, seen from its origin."""

    first: Tensor  # [B] range of the nearest point [m], infinite where there is none
    last: Tensor  # [B] range of the farthest point


class Seen(NamedTuple):
    """How points lie to the surfaces of a cloud."""

    known: Tensor  # [..., P] whether the cloud has a surface in the direction of a point
    through: Tensor  # [..., P] whether the point lies in front of it
    visible: Tensor  # [...


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
