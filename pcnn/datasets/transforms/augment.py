"""Random changes of a training cloud, each a pure function of the cloud and a generator.

A generator is made from (seed, epoch, index) alone, so a sample does not depend on which worker
loads it, on the samples before it, or on interruptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor

from pcnn.config.values import check_fields
from pcnn.datasets.cloud import Cloud, turned
from pcnn.datasets.transforms.crops import Pieces
from pcnn.datasets.transforms.features import Chromatic, Elastic, Remission
from pcnn.datasets.transforms.mixes import ScanMix
from pcnn.ranges import Degrees, Distance, Distances, Factors, PartialShare, Share


def sample_generator(
    seed: int, epoch: int, index: int, stream: int | None = None
) -> np.random.Generator:
    """Return the random generator of one sample in one epoch; a stream is one apart from it."""
    own = () if stream is None else (stream,)
    sequence = np.random.SeedSequence([seed, epoch, index], spawn_key=own)
    return np.random.Generator(np.random.PCG64(sequence))


def _selected(cloud: Cloud, keep: Tensor) -> Cloud:
    if cloud.n_points and not bool(keep.any()):
        keep[0] = True
    return cloud.select(keep)


def sector(cloud: Cloud, generator: np.random.Generator, degrees: float) -> Cloud:
    """Keep the points in a random sector about the sensor, ``degrees`` wide, but never none."""
    start = generator.uniform(-math.pi, math.pi)
    azimuth = torch.atan2(cloud.points[:, 1].double(), cloud.points[:, 0].double())
    keep = torch.remainder(azimuth - start, 2.0 * math.pi) < math.radians(degrees)
    return _selected(cloud, keep)


@dataclass(frozen=True)
class Augmentation:
    """Random changes in a fixed order; what is switched off draws no random number.

    A scan is mixed with another one first, then cropped to a piece or a sector, thinned, turned,
    tilted, scaled, mirrored, shifted, shaken and distorted; its features change last.
    """

    rotate_z: bool = True  # rotate about the vertical axis
    rotate_limit: Annotated[float, Interval(gt=0, le=180)] = 180.0
    scale: Factors | None = (0.95, 1.05)  # lowest and highest factor, or None
    flip: bool = True  # mirror x and y
    jitter: Distance | Distances = 0.01  # standard deviation of the noise [m]
    drop: PartialShare = 0.0  # share of points left out, in [0, 1)
    sector: Annotated[float, Interval(gt=0, le=360)] | None = None
    tilt: Degrees = 0.0  # largest angle of the rotations about x and y [deg]; 0 switches them off
    shift: tuple[Distance, Distance, Distance] | None = None  # largest moves along x
    elastic: Elastic | None = None  # smooth distortion, or None
    chromatic: Chromatic | None = None  # change of colour, or None
    remission: Remission | None = None  # change of remission, or None
    mix: ScanMix | None = None  # mixes the scan with another one of the set before everything else
    mix3d: Share = 0.0  # chance that another cloud of the set
    pieces: Pieces | None = None  # cuts a piece out of a room, or None

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(
        self,
        cloud: Cloud,
        generator: np.random.Generator,
        partner: Callable[[np.random.Generator], Cloud] | None = None,
    ) -> Cloud:
        if self.mix is not None:
            if partner is None:
                raise ValueError(f"{cloud.path}: a mix of scans needs a set to draw another from")
            cloud = self.mix(cloud, partner(generator), generator)
        if self.pieces is not None:
            cloud = self.pieces(cloud, generator)
        if self.sector is not None:
            cloud = sector(cloud, generator, self.sector)
        if self.drop > 0.0:
            luck = torch.from_numpy(generator.random(cloud.n_points))
            cloud = _selected(cloud, luck >= self.drop)
        if self.rotate_z:
            limit = self.rotate_limit
            cloud = turned(cloud, math.radians(generator.uniform(-limit, limit)))
        for axis in range(2 if self.tilt > 0.0 else 0):
            cloud = turned(cloud, math.radians(generator.uniform(-self.tilt, self.tilt)), axis)
        points = cloud.points
        if self.scale is not None:
            points = points * generator.uniform(*self.scale)
        if self.flip:  # x, and independently y, each with probability 1/2
            signs = [-1.0 if generator.random() < 0.5 else 1.0 for _ in range(2)]
            points = points * torch.tensor([*signs, 1.0])
        if self.shift is not None:
            move = generator.uniform(-1.0, 1.0, 3) * np.asarray(self.shift)
            points = points + torch.from_numpy(move.astype(np.float32))
        sigma = self.jitter
        if not isinstance(sigma, (int, float)):
            sigma = generator.uniform(*sigma)
        if sigma > 0.0:
            noise = generator.standard_normal(tuple(points.shape), dtype=np.float32)
            points = points + torch.from_numpy(noise) * sigma
        if points is not cloud.points:
            cloud = replace(cloud, points=points)
        for change in (self.elastic, self.chromatic, self.remission):
            if change is not None:
                cloud = change(cloud, generator)
        return cloud
