"""A cloud as another sensor might have measured it: rays, densities and noise.

Every change is a pure function of the cloud and a generator. Points [P, 3] float32 [m] lie in the
cloud's own frame, with the sensor at its origin. None adds points that were not measured.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pcnn.config.values import check_fields
from pcnn.ranges import Counts, Degrees, Distance, Distances, Lengths, Share

#: Points below which a pattern is not applied: fewer are no cloud to learn from.
LEAST = 256


class Sensor(ABC):
    """A change of a cloud that stands for another sensor."""

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def __call__(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        """The points [Q, 3] that this sensor would have measured, in their order; never none."""


@dataclass(frozen=True)
class AnySensor(Sensor):
    """One of several sensors, with a probability; all are as likely."""

    sensors: tuple[Sensor | tuple[Sensor, ...], ...]  # to choose among
    probability: Share = 1.0  # of changing the cloud at all

    def __post_init__(self) -> None:
        super().__post_init__()
        lists = [one if isinstance(one, (tuple, list)) else [one] for one in self.sensors]
        if not lists or not all(isinstance(one, Sensor) for some in lists for one in some):
            raise ValueError(f"sensors must hold one or more to choose among, got {self.sensors}")

    def __call__(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        if generator.random() >= self.probability:
            return points
        chosen = self.sensors[int(generator.integers(len(self.sensors)))]
        for sensor in chosen if isinstance(chosen, (tuple, list)) else (chosen,):
            points = sensor(points, generator)
        return points


@dataclass(frozen=True)
class Beams(Sensor):
    """A spinning LiDAR of that many beams, mounted higher or lower."""

    number: Counts = (16, 128)  # fewest and most beams, drawn evenly on a log scale
    thickness: Degrees = 0.42
    height: Distance = 0.0  # the sensor is moved up or down by up to so much [m]

    def __call__(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        beams = round(on_log_scale(self.number, generator))
        begin, move = generator.random(), generator.uniform(-self.height, self.height)
        x, y, z = points.T.contiguous()
        elevation = torch.atan2(z - move, (x * x).addcmul_(y, y).sqrt_())
        some = elevation[:: max(1, len(elevation) // 2000)]
        if not len(some):
            return points
        bottom, top = np.quantile(some.numpy(), (0.01, 0.99))
        spacing = (top - bottom) / beams
        if spacing <= math.radians(self.thickness):
            return points
        place = (elevation - float(bottom)) / float(spacing) + begin
        return kept(points, place - place.floor() < math.radians(self.thickness) / spacing)


@dataclass(frozen=True)
class RangeThinning(Sensor):
    """Density that falls with the distance: (whole / r)^power of the points at r stay."""

    whole: Lengths = (1.0, 3.0)  # distance up to which all points stay
    power: Distances = (0.0, 2.0)  # uniform between the two

    def __call__(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        whole, power = generator.uniform(*self.whole), generator.uniform(*self.power)
        share = (whole / ranges(points).clamp_(min=whole)) ** power
        chance = torch.from_numpy(generator.random(len(points), dtype=np.float32))
        return kept(points, chance < share)


@dataclass(frozen=True)
class RangeNoise(Sensor):
    """Normal noise along the ray whose standard deviation grows with the distance."""

    base: Distance = 0.02  # at the sensor, uniform from 0 to this [m]
    growth: Distance = 0.0005  # on every metre of distance, uniform from 0 to this [m]

    def __call__(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        base, growth = generator.uniform(0.0, self.base), generator.uniform(0.0, self.growth)
        distance = ranges(points)
        noise = torch.from_numpy(generator.standard_normal(len(points), dtype=np.float32))
        return at_ranges(points, distance, distance + noise * (base + growth * distance))


@dataclass(frozen=True)
class DepthCamera(Sensor):
    """A camera that finds depth by disparity: noise and steps that grow with the square of it."""

    farthest: Lengths = (3.0, 8.0)  # of what the camera sees
    noise: Distance = 0.003  # standard deviation at 1 m, uniform from 0 to this [m]
    quantum: Distance = 0.003  # step at 1 m, uniform from 0 to this [m]

    def __call__(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        limit = generator.uniform(*self.farthest)
        sigma, step = generator.uniform(0.0, self.noise), generator.uniform(0.0, self.quantum)
        points = kept(points, ranges(points) <= limit)
        distance = ranges(points)
        noise = torch.from_numpy(generator.standard_normal(len(points), dtype=np.float32))
        # rounding begins anywhere in a step, and never reaches infinity
        begin = generator.random()
        measured = (distance + noise * (sigma * distance**2)).clamp_(min=0.05)
        if step > 1e-6:
            steps = (1.0 / (measured * step) - begin).round_() + begin
            measured = 1.0 / (steps.clamp_(min=0.5) * step)
        return at_ranges(points, distance, measured)


@dataclass(frozen=True)
class Sparser(Sensor):
    """Fewer points: that many random ones at most, a number drawn evenly on a log scale."""

    points: Counts = (2000, 20000)  # fewest and most

    def __call__(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        wanted = round(on_log_scale(self.points, generator))
        if wanted >= len(points):
            return points
        chance = torch.from_numpy(generator.random(len(points), dtype=np.float32))
        return kept(points, chance < wanted / len(points))


def on_log_scale(pair: tuple[float, float], generator: np.random.Generator) -> float:
    return float(np.exp(generator.uniform(*np.log(pair))))


def ranges(points: Tensor) -> Tensor:
    """Distances [P] float32 of points from the origin."""
    x, y, z = points.T.contiguous()
    return (x * x).addcmul_(y, y).addcmul_(z, z).sqrt_()


def at_ranges(points: Tensor, distance: Tensor, wanted: Tensor) -> Tensor:
    """Points moved along their rays from one distance to another; those at the origin stay."""
    return points * torch.where(distance > 0, wanted / distance, 1.0)[:, None]


def kept(points: Tensor, keep: Tensor) -> Tensor:
    """Those points; all where fewer than `LEAST` would be left."""
    rows = keep.nonzero()[:, 0]
    if len(rows) < min(LEAST, len(points)):
        return points
    return points if len(rows) == len(points) else points.index_select(0, rows)
