"""Patterns in which sensors send their rays, on the points that another sensor measured.

A pattern keeps the points that its rays would have met. It adds none that the first sensor did not
see, so a pattern that is finer than the cloud changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.registration.sensors import Sensor, kept, on_log_scale, ranges
from pcnn.ranges import Count, Degrees, Distance, Positive


@dataclass(frozen=True)
class Beams(Sensor):
    """A spinning LiDAR of that many beams, mounted higher or lower.

    Beams are spread evenly over the elevations that hold 98 % of the points. Where they are closer
    than `thickness`, all points stay.
    """

    number: tuple[Count, Count] = (16, 128)  # fewest and most beams, drawn evenly on a log scale
    thickness: Degrees = 0.42
    height: Distance = 0.0  # the sensor is moved up or down by up to so much [m]

    def __call__(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        beams = round(on_log_scale(self.number, generator))
        begin, move = generator.random(), generator.uniform(-self.height, self.height)
        _, elevation = angles(points, move)
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
class SurveyScan(Sensor):
    """A survey scanner: one return of every step of azimuth and elevation, the nearest.

    So points are dense near the scanner and sparse far from it.
    """

    step: tuple[Positive, Positive] = (0.2, 2.0)  # of both angles
    height: Distance = 0.0  # the scanner is moved up or down by up to so much [m]

    def __call__(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        step = math.radians(on_log_scale(self.step, generator))
        begin, move = generator.random(2), generator.uniform(-self.height, self.height)
        azimuth, elevation = angles(points, move)
        if not len(points):
            return points
        columns = (azimuth / step + begin[0]).floor_().int()
        rows = (elevation / step + begin[1]).floor_().int()
        columns -= columns.min()
        rows -= rows.min()
        width = int(columns.max()) + 1
        ray = rows.long().mul_(width).add_(columns)  # [P]
        distance = ranges(points)
        nearest = torch.full((int(rows.max() + 1) * width,), torch.inf)
        nearest.scatter_reduce_(0, ray, distance, "amin")
        return kept(points, distance == nearest[ray])


@dataclass(frozen=True)
class SolidState(Sensor):
    """A LiDAR without a spinning head: a rosette in a cone about the direction that it looks in.

    Two prisms that turn at different rates bend the ray twice by the same angle, so that its
    direction is the sum of two circles: dense in the middle, sparse at the edge.
    """

    field: tuple[Positive, Positive] = (60.0, 120.0)  # angle of the whole cone
    resolution: tuple[Positive, Positive] = (0.3, 0.8)  # width of the ray's trace
    turns: tuple[Positive, Positive] = (15.0, 60.0)  # of the prisms in a scan
    ahead: bool = False  # the sensor looks along x, as on a vehicle
    wander: Degrees = 10.0  # largest turn of that direction in azimuth [deg]

    def __call__(self, points: Tensor, generator: np.random.Generator) -> Tensor:
        half = math.radians(generator.uniform(*self.field)) / 2
        width = math.radians(generator.uniform(*self.resolution))
        turn = math.radians(generator.uniform(-self.wander, self.wander))
        turns, ratio = generator.uniform(*self.turns), generator.uniform(1.3, 2.7)
        phase = generator.uniform(0.0, 2.0 * math.pi)
        if not len(points):
            return points
        if self.ahead:
            middle = turn, 0.0
        else:
            x, y, z = points.double().mean(0).tolist()
            middle = math.atan2(y, x) + turn, math.atan2(z, math.hypot(x, y))
        u, v = about(points, *middle)
        cells = math.ceil(2 * half / width) + 1
        traced = rosette(cells, turns, ratio, phase)
        column = ((u + half) / width).floor_().int()
        row = ((v + half) / width).floor_().int()
        inside = (column >= 0) & (column < cells) & (row >= 0) & (row < cells)
        place = (row * cells + column).mul_(inside).long()
        return kept(points, traced[place] & inside)


def angles(points: Tensor, move: float = 0.0) -> tuple[Tensor, Tensor]:
    """Azimuth and elevation [P] float32 [rad] of points, seen from ``move`` metres above origin."""
    x, y, z = points.T.contiguous()
    z = z - move
    flat = (x * x).addcmul_(y, y).sqrt_()
    return torch.atan2(y, x), torch.atan2(z, flat)


def about(points: Tensor, azimuth: float, elevation: float) -> tuple[Tensor, Tensor]:
    """Angles [P] [rad] of points from a direction, to its left and up; their length is the angle.

    This is the azimuthal equidistant projection about the direction.
    """
    cos, sin, rise, fall = (
        math.cos(azimuth),
        math.sin(azimuth),
        math.sin(elevation),
        math.cos(elevation),
    )
    x, y, z = points.T.contiguous()
    along = x * (cos * fall) + y * (sin * fall) + z * rise
    left = y * cos - x * sin
    up = z * fall - (x * cos + y * sin) * rise
    side = (left * left).addcmul_(up, up).sqrt_()
    stretch = torch.atan2(side, along) / side.clamp_(min=1e-12)
    return left * stretch, up * stretch


def rosette(cells: int, turns: float, ratio: float, phase: float) -> Tensor:
    """The cells [cells * cells] bool of a square that the sum of two circles passes through."""
    radius = cells / 4
    step = 1.0 / (radius * (1.0 + ratio))  # the curve moves by a cell at most
    first = torch.arange(int(turns * 2.0 * math.pi / step), dtype=torch.float32) * step
    second = phase - ratio * first
    column = first.cos().add_(second.cos()).mul_(radius).add_(cells / 2).clamp_(0, cells - 1).int()
    row = first.sin().add_(second.sin()).mul_(radius).add_(cells / 2).clamp_(0, cells - 1).int()
    traced = torch.zeros(cells * cells, dtype=torch.bool)
    traced[row.mul_(cells).add_(column).long()] = True
    return traced
