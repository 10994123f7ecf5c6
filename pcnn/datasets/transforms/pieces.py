"""Random pieces of rooms, as crops of clouds and partial scans hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from annotated_types import Len

from pcnn.config.values import check_fields
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.transforms.features import between
from pcnn.ranges import Length, PartialShare, Share, rising


@dataclass(frozen=True)
class Pieces:
    """Cut a piece out of a room, take its upper part away, and leave points out.

    A piece is what a ball or an upright cylinder about a random point holds. The middle of a ball
    is lowered to a random share of the height of its point, as most crops hold what stands on a
    floor. So a network learns from rooms that lack walls or a ceiling, and from clouds of several
    densities. The origin of the points that are left is in the middle of their box along x and y
    and at their lowest point, as that of whole rooms is.
    """

    share: Share = 0.7  # chance of a piece; half of them are balls
    radius: Annotated[Sequence[Length], Len(2, 2)] = (1.5, 4.0)  # smallest and largest radius [m]
    open: Share = 0.3  # chance that everything above a height is missing
    height: Annotated[Sequence[Length], Len(2, 2)] = (0.8, 2.2)
    thin: PartialShare = 0.0  # largest share of points left out

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("radius", "height"):
            rising(f"{name} of pieces", getattr(self, name))

    def __call__(self, cloud: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the piece, of at least one point; a cloud without points as it is."""
        # always the same draws, so that a chance changes nothing but what it is about
        cut, ball, middle, lower, size, opened, height, thin = generator.random(8).tolist()
        seed = int(generator.integers(1 << 63))
        if cloud.n_points == 0:
            return cloud
        keep = torch.ones(cloud.n_points, dtype=torch.bool)
        if cut < self.share:
            centre = cloud.points[int(middle * cloud.n_points)].clone()
            bottom = cloud.points[:, 2].min()
            centre[2] = bottom + lower * (centre[2] - bottom)
            axes = 3 if ball < 0.5 else 2
            square = (cloud.points - centre)[:, :axes].square().sum(1)
            inside = square <= between(self.radius, size) ** 2
            keep = inside if bool(inside.any()) else keep
        if opened < self.open:
            z = cloud.points[:, 2]
            keep &= z <= z[keep].min() + between(self.height, height)
        if thin > 0.0 and self.thin > 0.0:
            luck = np.random.default_rng(seed).random(cloud.n_points)
            left = keep & (torch.from_numpy(luck) >= self.thin * thin**2)
            keep = left if bool(left.any()) else keep
        return on_floor(cloud.select(keep))


def on_floor(cloud: Cloud) -> Cloud:
    """Move the middle of the bounding box to x = y = 0 and its lowest point to z = 0."""
    if not cloud.n_points:
        return cloud
    low, high = cloud.points.aminmax(dim=0)
    origin = (low + high) / 2
    origin[2] = low[2]
    return replace(cloud, points=cloud.points - origin)
