"""Random changes of a training cloud, each a pure function of the cloud and a generator.

A generator is made from (seed, epoch, index) alone, so a sample does not depend on which worker
loads it, on the samples before it, or on interruptions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.samples import Cloud


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Return the random generator of one sample in one epoch."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch, index])))


def rotate_z(cloud: Cloud, generator: np.random.Generator, limit: float = 180.0) -> Cloud:
    """Rotate about the vertical axis by an angle uniform in [-limit, limit) degrees."""
    angle = math.radians(generator.uniform(-limit, limit))
    cos, sin = math.cos(angle), math.sin(angle)
    x, y, z = cloud.points.unbind(1)
    # element by element: a matrix product may round differently with another number of threads
    return replace(cloud, points=torch.stack([x * cos - y * sin, x * sin + y * cos, z], dim=1))


def scale(cloud: Cloud, generator: np.random.Generator, low: float, high: float) -> Cloud:
    """Scale all coordinates by one factor uniform in [low, high)."""
    return replace(cloud, points=cloud.points * generator.uniform(low, high))


def flip(cloud: Cloud, generator: np.random.Generator) -> Cloud:
    """Mirror x, and independently y, each with probability 1/2."""
    signs = [-1.0 if generator.random() < 0.5 else 1.0 for _ in range(2)]
    return replace(cloud, points=cloud.points * torch.tensor([*signs, 1.0]))


def jitter(cloud: Cloud, generator: np.random.Generator, sigma: float) -> Cloud:
    """Add normal noise of standard deviation ``sigma`` [m] to every coordinate."""
    noise = generator.standard_normal(tuple(cloud.points.shape), dtype=np.float32)
    return replace(cloud, points=cloud.points + _tensor(noise) * sigma)


def drop(cloud: Cloud, generator: np.random.Generator, share: float) -> Cloud:
    """Leave out every point with probability ``share``, but never the last one left."""
    keep = _tensor(generator.random(cloud.n_points)) >= share
    if cloud.n_points and not bool(keep.any()):
        keep[0] = True
    return cloud.select(keep.nonzero()[:, 0])


def sector(cloud: Cloud, generator: np.random.Generator, degrees: float) -> Cloud:
    """Keep the points in a random sector about the sensor, ``degrees`` wide, but never none."""
    start = generator.uniform(-math.pi, math.pi)
    azimuth = torch.atan2(cloud.points[:, 1].double(), cloud.points[:, 0].double())
    keep = torch.remainder(azimuth - start, 2.0 * math.pi) < math.radians(degrees)
    if cloud.n_points and not bool(keep.any()):
        keep[0] = True
    return cloud.select(keep.nonzero()[:, 0])


@dataclass(frozen=True)
class Augmentation:
    """The changes above in a fixed order; what is switched off draws no random number.

    Args:
        rotate_z: rotate about the vertical axis.
        rotate_limit: largest angle of that rotation [deg].
        scale: lowest and highest factor, or None.
        flip: mirror x and y.
        jitter: standard deviation of the noise [m]; 0 switches it off.
        drop: share of points left out, in [0, 1).
        sector: width of the random sector about the sensor that is kept [deg], or None.

    Raises:
        ValueError: a number out of range.
    """

    rotate_z: bool = True
    rotate_limit: float = 180.0
    scale: tuple[float, float] | None = (0.95, 1.05)
    flip: bool = True
    jitter: float = 0.01
    drop: float = 0.0
    sector: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            low, high = self.scale
            if not 0.0 < low <= high:
                raise ValueError(f"scale must be two factors 0 < low <= high, got {self.scale}")
            object.__setattr__(self, "scale", (float(low), float(high)))  # YAML gives a list
        if not 0.0 < self.rotate_limit <= 180.0:
            raise ValueError(f"rotate_limit must lie in (0, 180], got {self.rotate_limit}")
        if self.jitter < 0.0:
            raise ValueError(f"jitter must be at least 0 m, got {self.jitter}")
        if not 0.0 <= self.drop < 1.0:
            raise ValueError(f"drop must lie in [0, 1), got {self.drop}")
        if self.sector is not None and not 0.0 < self.sector <= 360.0:
            raise ValueError(f"sector must lie in (0, 360] degrees, got {self.sector}")

    def __call__(self, cloud: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the changed cloud; the given one stays as it is."""
        if self.sector is not None:
            cloud = sector(cloud, generator, self.sector)
        if self.drop > 0.0:
            cloud = drop(cloud, generator, self.drop)
        if self.rotate_z:
            cloud = rotate_z(cloud, generator, self.rotate_limit)
        if self.scale is not None:
            cloud = scale(cloud, generator, *self.scale)
        if self.flip:
            cloud = flip(cloud, generator)
        if self.jitter > 0.0:
            cloud = jitter(cloud, generator, self.jitter)
        return cloud


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array)
