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


def rotate_z(cloud: Cloud, generator: np.random.Generator) -> Cloud:
    """Rotate about the vertical axis by an angle uniform in [0, 2 pi)."""
    angle = generator.uniform(0.0, 2.0 * math.pi)
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


@dataclass(frozen=True)
class Augmentation:
    """The changes above in a fixed order; what is switched off draws no random number.

    Args:
        rotate_z: rotate about the vertical axis.
        scale: lowest and highest factor, or None.
        flip: mirror x and y.
        jitter: standard deviation of the noise [m]; 0 switches it off.
        drop: share of points left out, in [0, 1).

    Raises:
        ValueError: a number out of range.
    """

    rotate_z: bool = True
    scale: tuple[float, float] | None = (0.95, 1.05)
    flip: bool = True
    jitter: float = 0.01
    drop: float = 0.0

    def __post_init__(self) -> None:
        if self.scale is not None:
            low, high = self.scale
            if not 0.0 < low <= high:
                raise ValueError(f"scale must be two factors 0 < low <= high, got {self.scale}")
            object.__setattr__(self, "scale", (float(low), float(high)))  # YAML gives a list
        if self.jitter < 0.0:
            raise ValueError(f"jitter must be at least 0 m, got {self.jitter}")
        if not 0.0 <= self.drop < 1.0:
            raise ValueError(f"drop must lie in [0, 1), got {self.drop}")

    def __call__(self, cloud: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the changed cloud; the given one stays as it is."""
        if self.drop > 0.0:
            cloud = drop(cloud, generator, self.drop)
        if self.rotate_z:
            cloud = rotate_z(cloud, generator)
        if self.scale is not None:
            cloud = scale(cloud, generator, *self.scale)
        if self.flip:
            cloud = flip(cloud, generator)
        if self.jitter > 0.0:
            cloud = jitter(cloud, generator, self.jitter)
        return cloud


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array)
