"""The course of a road, and the drive of the sensor along it: its pose and motion at any time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pcnn.simulate.mesh import Floats, rotation_z
from pcnn.simulate.streets.settings import Course

REVOLUTION = 0.1  # [s] at 10 Hz


@dataclass(frozen=True, eq=False)
class Road:
    """A gently winding, gently rolling centre line, endless in both directions.

    The centre line is y(s), z(s), sums of sines over x = s: smooth everywhere, without an integral,
    and flat enough (slope under about 0.2) that s is arc length within 2 %. Every street is built
    straight and then bent by `bend`, which also gives the surface its crown.
    """

    sway: Floats  # [M, 3] amplitude [m], wave length [m], phase [rad] of y
    roll: Floats  # [M, 3] the same of z
    crown: float  # slope of the surface down from the centre line
    half: float  # width of the surface that has it, to either side [m]

    @staticmethod
    def draw(rng: np.random.Generator, course: Course) -> Road:
        def waves(slope: float, low: float, high: float) -> Floats:
            length = rng.uniform(low, high, 2)
            share = rng.uniform(0.3, 0.5, 2)
            phase = rng.uniform(0, 2 * np.pi, 2)
            return np.stack([slope * share * length / (2 * np.pi), length, phase], axis=1)

        bend = course.bend * course.kind.bends
        sway, roll = waves(bend, 160.0, 320.0), waves(course.hill, 120.0, 260.0)
        fine = waves(0.006, 14.0, 40.0)
        return Road(sway, np.concatenate([roll, fine]), course.crown, course.road_half_width)

    @staticmethod
    def _sum(waves: Floats, s: ArrayLike, derivative: bool) -> Floats:
        total = np.zeros(np.shape(s))
        # wave by wave: a trailing axis of two would be slower over a million corners
        for amplitude, length, phase in waves:
            turn = 2 * np.pi / length
            angle = np.asarray(s, np.float64) * turn + phase
            total += amplitude * turn * np.cos(angle) if derivative else amplitude * np.sin(angle)
        return total

    def heading(self, s: ArrayLike) -> Floats:
        """The direction of the centre line [rad] at s."""
        return np.asarray(np.arctan(self._sum(self.sway, s, derivative=True)))

    def grade(self, s: ArrayLike) -> Floats:
        return self._sum(self.roll, s, derivative=True)

    def bend(self, points: Floats) -> Floats:
        """Map street coordinates [..., 3] to world coordinates [..., 3]."""
        s, d, z = points[..., 0], points[..., 1], points[..., 2]
        slope = self._sum(self.sway, s, derivative=True)
        # d over the length of (1, slope): the step to the left is d (-sin, cos) of the heading
        step = d / np.sqrt(1.0 + slope**2)
        fall = np.sqrt(np.minimum(np.abs(d), self.half) ** 2 + 1.0) - 1.0
        return np.stack(
            [
                s - step * slope,
                self._sum(self.sway, s, derivative=False) + step,
                z + self._sum(self.roll, s, derivative=False) - self.crown * fall,
            ],
            axis=-1,
        )


@dataclass(frozen=True, eq=False)
class Drive:
    """A vehicle in the right-hand lane at nearly constant speed, drifting and nodding a little."""

    road: Road
    speed: float  # [m/s]
    lane: float  # [m] right of the centre line
    sensor_height: float  # [m] above the road
    phases: Floats  # [4] [rad]

    def along(self, time: float) -> float:
        """How far the vehicle has come after `time` seconds [m]."""
        return self.speed * time + 0.4 * float(np.sin(0.5 * time + self.phases[0]))

    def pose(self, time: float) -> Floats:
        """Sensor to world [4, 4]: x forward, y left, z up, all metres."""
        s = self.along(time)
        drift = 0.12 * np.sin(0.35 * time + self.phases[1])
        drift_rate = 0.12 * 0.35 * np.cos(0.35 * time + self.phases[1]) / self.speed
        yaw = float(self.road.heading(s)) + drift_rate
        pitch = -float(np.arctan(self.road.grade(s))) + 0.004 * np.sin(2.1 * time + self.phases[2])
        lean = self.road.crown * self.lane / np.hypot(self.lane, 1.0)  # the slope of the crown
        roll = lean + 0.005 * np.sin(1.7 * time + self.phases[3])
        (cy, sy), (cx, sx) = ((np.cos(a), np.sin(a)) for a in (pitch, roll))
        about_y = np.array([[cy, 0.0, sy], [0.0, 1.0, 0.0], [-sy, 0.0, cy]])
        about_x = np.array([[1.0, 0.0, 0.0], [0.0, cx, -sx], [0.0, sx, cx]])
        pose = np.eye(4)
        pose[:3, :3] = rotation_z(yaw) @ about_y @ about_x
        pose[:3, 3] = self.road.bend(np.array([s, drift - self.lane, self.sensor_height]))
        return pose
