"""Random changes of a training pair, a pure function of the pair and a generator.

Both clouds are changed independently, and the true transform with them: a place that the two share
lies at the same place afterwards, x_t = T x_s, to the rounding of float32.

Points are [P, 3] everywhere; behind `columns` their memory holds all x, then all y, then all z, on
which arithmetic takes a third of the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcnn.config.values import check_fields
from pcnn.datasets.registration.sensors import Sensor
from pcnn.datasets.transforms.crops import smallest
from pcnn.ranges import Degrees, Distance, Factors, PartialShare, Share

Matrix = NDArray[np.float64]
Columns = NDArray[np.float32]


#: Source [P, 3] and target [Q, 3] float32 [m], and the transform [4, 4] float64 between them.
Pair = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class PairAugmentation:
    """Random changes of pairs in a fixed order; what is switched off draws no random number.

    First effects of a sensor, in the cloud's own frame with the sensor at its origin (`sensors`,
    `drop`, `depth_noise`, `warp`, `jitter`). Then a similarity of each cloud:
    ``x' = s (R (x - m) + m + d)`` with m the cloud's mean and one s for both. The transform becomes
    ``S_t T S_s⁻¹``, in which s leaves the rotation and scales the translation.

    Source: FCGF, lib/data_loaders.py, whose axes are not uniform and whose clouds turn into the
    origin.
    """

    rotation: Degrees = 180.0  # angles are uniform in [-rotation, rotation) [deg], of both clouds
    axis: Literal["any", "vertical"] = "any"  # any, uniform on the sphere, or vertical, the z axis
    uniform_rotations: bool = False  # draw uniformly among the rotations up to that angle
    scale: Factors | None = None  # lowest and highest factor, or None
    scale_probability: Share = 0.95  # of scaling a pair at all
    shift: Distance = 0.0  # both clouds are moved by up to so much along every axis [m]
    jitter: Distance = 0.0  # standard deviation of the noise of every coordinate [m]
    depth_noise: Distance = 0.0  # standard deviation of the noise along the ray from the sensor
    warp: Distance = 0.0  # standard deviation of a smooth distortion of each cloud [m]
    drop: PartialShare = 0.0  # largest share of points left out at random
    sensors: tuple[Sensor, ...] = ()  # changes that stand for other sensors

    def __post_init__(self) -> None:
        check_fields(self)
        if not all(isinstance(sensor, Sensor) for sensor in self.sensors):
            raise ValueError(f"sensors must be a list of sensors, got {self.sensors}")
        if self.uniform_rotations and self.axis != "any":
            raise ValueError(f"uniform_rotations are about any axis, got axis={self.axis}")

    def __call__(self, pair: Pair, generator: np.random.Generator) -> Pair:
        """Return the changed pair; the given one stays as it is."""
        source, target = (self._measured(points, generator) for points in pair[:2])
        moves = [self._motion(cloud, generator) for cloud in (source, target)]
        factor = 1.0
        if self.scale is not None and generator.random() < self.scale_probability:
            factor = generator.uniform(*self.scale)
        truth = moves[1] @ pair[2].numpy() @ np.linalg.inv(moves[0])
        truth[:3, 3] *= factor
        placed = similar(source, moves[0], factor), similar(target, moves[1], factor)
        return *placed, torch.from_numpy(truth)

    def _measured(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        """The points as another measurement might have had them."""
        for sensor in self.sensors:
            points = sensor(points, generator)
        if self.drop > 0.0:
            points = dropped(points, generator, self.drop)
        if self.depth_noise > 0.0:
            points = along_rays(points, generator, self.depth_noise)
        if self.warp > 0.0:
            points = warped(points, generator, self.warp)
        if self.jitter > 0.0:
            noise = generator.standard_normal(tuple(points.shape), dtype=np.float32)
            noise *= np.float32(self.jitter)
            points = rows(columns(points) + columns(torch.from_numpy(noise)))
        return points

    def _motion(self, points: Tensor, generator: np.random.Generator) -> Matrix:
        """A rigid motion [4, 4] of the cloud about its mean."""
        motion = np.eye(4)
        if self.rotation > 0.0:
            axis = np.array([0.0, 0.0, 1.0])
            if self.axis == "any":
                axis = generator.standard_normal(3)
                axis /= np.linalg.norm(axis)
            if self.uniform_rotations:
                angle = uniform_angle(math.radians(self.rotation), generator.random())
            else:
                angle = math.radians(generator.uniform(-self.rotation, self.rotation))
            mean = centre(points)
            motion[:3, :3] = rotation_about(axis, angle)
            motion[:3, 3] = mean - motion[:3, :3] @ mean
        if self.shift > 0.0:
            motion[:3, 3] += generator.uniform(-self.shift, self.shift, 3)
        return motion


def uniform_angle(largest: float, share: float) -> float:
    """Angle [rad] below which that share of the rotations up to ``largest`` [rad] turn."""
    wanted = share * (largest - math.sin(largest))
    low, high = 0.0, largest
    for _ in range(48):
        middle = (low + high) / 2
        low, high = (middle, high) if middle - math.sin(middle) < wanted else (low, middle)
    return high


def rotation_about(axis: Matrix, angle: float) -> Matrix:
    """Rotation [3, 3] about a unit axis by an angle [rad] (Rodrigues' formula)."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + math.sin(angle) * cross + (1.0 - math.cos(angle)) * cross @ cross


def columns(points: Tensor) -> Columns:
    """Coordinates [3, P] of points, each contiguous; not a copy where they lie so."""
    return np.ascontiguousarray(points.numpy().T)


def rows(coordinates: Columns) -> Tensor:
    """Points [P, 3] of their coordinates [3, P]; no copy."""
    return torch.from_numpy(coordinates).T


def centre(points: Tensor) -> Matrix:
    """Mean [3] float64 of points; 0 of none."""
    if not len(points):
        return np.zeros(3)
    # running sums add one point after the other, however points lie in memory
    sums = torch.from_numpy(columns(points)).cumsum(1, dtype=torch.float64)  # [3, P]
    return sums[:, -1].numpy() / len(points)


def similar(points: Tensor, motion: Matrix, factor: float) -> Tensor:
    """Points [P, 3] float32 moved rigidly by ``motion`` [4, 4], then scaled."""
    x, y, z = columns(points).astype(np.float64)
    moved = np.empty((3, len(points)), np.float32)
    # element by element: a matrix product may round differently with another number of threads
    for out, (a, b, c, d) in zip(moved, (factor * motion[:3]).tolist(), strict=True):
        out[:] = x * a + y * b + z * c + d
    return rows(moved)


def dropped(points: Tensor, generator: np.random.Generator, largest: float) -> Tensor:
    """Leave out a share uniform in [0, largest) of the points at random; never all."""
    share = generator.uniform(0.0, largest)
    return subset(points, generator, math.ceil((1.0 - share) * len(points)))


def subset(points: Tensor, generator: np.random.Generator, number: int) -> Tensor:
    """That many random points, in their order; all where there are no more."""
    if len(points) <= number:
        return points
    # raw 64-bit words instead of Generator.choice, whose stream numpy may change
    words = generator.bit_generator.random_raw(len(points))
    return points.index_select(0, torch.from_numpy(smallest(words, number)))


def along_rays(points: Tensor, generator: np.random.Generator, at_one_metre: float) -> Tensor:
    """Move points along their rays from the origin by normal noise of ``at_one_metre`` r² [m]."""
    noise = generator.standard_normal(len(points), dtype=np.float32) * np.float32(at_one_metre)
    x, y, z = places = columns(points)
    distance = torch.from_numpy(x * x + y * y + z * z).sqrt_().numpy()  # [P]
    # x / r times noise at_one_metre r^2
    return rows(places + places * (noise * distance))


def warped(points: Tensor, generator: np.random.Generator, size: float) -> Tensor:
    """Add a smooth random field of standard deviation ``size`` [m] to every coordinate."""
    waves = 3
    direction = generator.standard_normal((3, waves, 3))
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    lengths = np.exp(generator.uniform(math.log(0.5), math.log(4.0), (3, waves, 1)))
    phases = generator.uniform(0.0, 2.0 * math.pi, (3, waves))
    vectors = (2.0 * math.pi * direction / lengths).astype(np.float32)[..., None]
    shifts = phases.astype(np.float32)[..., None]  # [3, waves, 1]
    # a sine of random phase has variance 1/2
    height = np.float32(size * math.sqrt(2.0 / waves))
    x, y, z = places = columns(points)
    moved = places.copy()
    field, part = np.empty((2, waves, len(points)), np.float32)
    for value, (a, b, c), shift in zip(moved, vectors.transpose(0, 2, 1, 3), shifts, strict=True):
        np.multiply(x, a, out=field)  # [waves, P]
        field += np.multiply(y, b, out=part)
        field += np.multiply(z, c, out=part)
        field += shift
        torch.from_numpy(field).sin_()
        field *= height
        for wave in field:
            value += wave
    return rows(moved)
