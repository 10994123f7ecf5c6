"""The course of a road, and the drive of the sensor along it: its pose and motion at any time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pcnn.simulate.mesh import Floats, rotation_z


@dataclass(frozen=True, eq=False)
class Road:
    """A gently winding, gently rolling centre line, endless in both directions.

    The centre line is y(s), z(s), sums of sines over x = s: smooth everywhere, without an integral,
    and flat enough (slope under about 0.2) that s is arc length within 2 %. Every street is built
    straight and then bent by `bend`, which also gives the surface its crown and its camber.
    """

    sway: Floats  # [M, 3] amplitude [m], wave length [m], phase [rad] of y
    roll: Floats  # [M, 3] the same of z
    tilt: Floats  # [M, 3] amplitude [m/m], wave length [m], phase [rad] of the slope to the left
    crown: float  # slope of the surface down from the centre line

    @staticmethod
    def draw(
        rng: np.random.Generator, bend: float, hill: float, crown: float, camber: float
    ) -> Road:
        def waves(slope: float, low: float, high: float) -> Floats:
            length = rng.uniform(low, high, 2)
            share = rng.uniform(0.3, 0.5, 2)
            phase = rng.uniform(0, 2 * np.pi, 2)
            return np.stack([slope * share * length / (2 * np.pi), length, phase], axis=1)

        sway, roll = waves(bend, 160.0, 320.0), waves(hill, 120.0, 260.0)
        bumps = waves(0.006, 14.0, 40.0)
        length, phase = rng.uniform(70.0, 220.0, 2), rng.uniform(0, 2 * np.pi, 2)
        tilt = np.stack([camber * rng.uniform(0.3, 0.5, 2), length, phase], axis=1)
        return Road(sway, np.concatenate([roll, bumps]), tilt, crown)

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
        """Return the direction of the centre line [rad] at s."""
        return np.asarray(np.arctan(self._sum(self.sway, s, derivative=True)))

    def grade(self, s: ArrayLike) -> Floats:
        return self._sum(self.roll, s, derivative=True)

    def _profile(self, s: Floats, d: Floats) -> Floats:
        """Height of the surface at d above the centre line [m]; level beyond the gardens."""
        tilt = self._sum(self.tilt, s, derivative=False) * np.clip(d, -25.0, 25.0)
        fall = np.sqrt(np.minimum(np.abs(d), 10.0) ** 2 + 1.0) - 1.0
        return np.asarray(tilt - self.crown * fall)

    def cross_slope(self, s: float, d: float) -> float:
        ends = self._profile(np.array([s, s]), np.array([d - 0.75, d + 0.75]))
        return float(ends[1] - ends[0]) / 1.5

    def bend(self, points: Floats) -> Floats:
        """Map street coordinates [..., 3] to world coordinates [..., 3]."""
        s, d, z = points[..., 0], points[..., 1], points[..., 2]
        slope = self._sum(self.sway, s, derivative=True)
        # d over the length of (1, slope): the step to the left is d (-sin, cos) of the heading
        step = d / np.sqrt(1.0 + slope**2)
        return np.stack(
            [
                s - step * slope,
                self._sum(self.sway, s, derivative=False) + step,
                z + self._sum(self.roll, s, derivative=False) + self._profile(s, d),
            ],
            axis=-1,
        )


REVOLUTION = 0.1  # [s] at 10 Hz


@dataclass(frozen=True, eq=False)
class Sweep:
    """A pose and the constant screw motion about it: phase u in [-0.5, 0.5] of a revolution."""

    pose: Floats  # [4, 4] sensor to world at phase 0
    shift: Floats  # [3] in the sensor's frame [m] a revolution
    turn: Floats  # [3] rotation vector in the sensor's frame [rad] a revolution

    @staticmethod
    def between(before: Floats, pose: Floats, after: Floats) -> Sweep:
        """Make the sweep of three poses [4, 4]: half a revolution before, at and after phase 0."""
        back = np.linalg.inv(pose)
        first, last = back @ before, back @ after
        spin = last[:3, :3] @ first[:3, :3].T  # a small rotation: its skew part is its vector
        skew = (spin - spin.T) / 2
        return Sweep(
            pose, last[:3, 3] - first[:3, 3], np.array([skew[2, 1], skew[0, 2], skew[1, 0]])
        )

    def moved(self, points: Floats, phase: Floats) -> Floats:
        """Map points [N, 3] from the sensor's frame at their phase [N] to its frame at phase 0.

        With a share of the phase, that share of the motion is taken out of measured points.
        """
        return self.turned(points, phase) + phase[:, None] * self.shift

    def turned(self, vectors: Floats, phase: Floats) -> Floats:
        """Turn vectors [N, 3] from the frame at their phase [N] to the frame at phase 0."""
        # to second order in an angle of under 0.05 rad
        angle = phase[:, None] * self.turn
        once = _cross(angle, vectors)
        return np.asarray(vectors + once + 0.5 * _cross(angle, once))

    def to_world(self, points: Floats) -> Floats:
        """Map points [N, 3] from the frame at phase 0 to the world."""
        return self.rotated(points) + self.pose[:3, 3]

    def rotated(self, vectors: Floats) -> Floats:
        """Turn vectors [N, 3] from the frame at phase 0 to the axes of the world."""
        # not a BLAS product, whose threads would wait for each other in every worker
        return np.einsum("rc,wc->rw", vectors, self.pose[:3, :3])


def _cross(a: Floats, b: Floats) -> Floats:
    """Return the vector products of rows [N, 3]; numpy's own takes three times as long."""
    (x, y, z), (u, v, w) = a.T, b.T
    return np.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=1)


@dataclass(frozen=True, eq=False)
class Drive:
    """A vehicle in the right-hand lane at nearly constant speed, drifting and nodding a little."""

    road: Road
    speed: float  # [m/s]
    lane: float  # [m] right of the centre line
    sensor_height: float  # [m] above the road
    phases: Floats  # [4] [rad]

    def along(self, time: float) -> float:
        """Return how far the vehicle has come after `time` seconds [m]."""
        return self.speed * time + 0.4 * float(np.sin(0.5 * time + self.phases[0]))

    def pose(self, time: float) -> Floats:
        """Return sensor to world [4, 4]: x forward, y left, z up, all metres."""
        s = self.along(time)
        drift = 0.12 * np.sin(0.35 * time + self.phases[1])
        drift_rate = 0.12 * 0.35 * np.cos(0.35 * time + self.phases[1]) / self.speed
        yaw = float(self.road.heading(s)) + drift_rate
        pitch = -float(np.arctan(self.road.grade(s))) + 0.004 * np.sin(2.1 * time + self.phases[2])
        lean = float(np.arctan(self.road.cross_slope(s, drift - self.lane)))
        roll = lean + 0.005 * np.sin(1.7 * time + self.phases[3])
        (cy, sy), (cx, sx) = ((np.cos(a), np.sin(a)) for a in (pitch, roll))
        about_y = np.array([[cy, 0.0, sy], [0.0, 1.0, 0.0], [-sy, 0.0, cy]])
        about_x = np.array([[1.0, 0.0, 0.0], [0.0, cx, -sx], [0.0, sx, cx]])
        pose = np.eye(4)
        pose[:3, :3] = rotation_z(yaw) @ about_y @ about_x
        pose[:3, 3] = self.road.bend(np.array([s, drift - self.lane, self.sensor_height]))
        return pose

    def sweep(self, time: float) -> Sweep:
        """Return the motion during the revolution about `time` [s]."""
        half = REVOLUTION / 2
        return Sweep.between(self.pose(time - half), self.pose(time), self.pose(time + half))
