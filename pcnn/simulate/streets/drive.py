"""The drive of the sensor: its pose at any time, and its motion during one revolution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcnn.simulate.mesh import Floats, rotation_z
from pcnn.simulate.streets.road import Road

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

    @staticmethod
    def draw(
        rng: np.random.Generator, road: Road, speed: float, lane: float, sensor_height: float
    ) -> Drive:
        """Draw the phases of the drift."""
        return Drive(road, speed, lane, sensor_height, rng.uniform(0, 2 * np.pi, 4))

    def along(self, time: float) -> float:
        """Return how far the vehicle has come after `time` seconds [m]."""
        return self.speed * time + 0.4 * float(np.sin(0.5 * time + self.phases[0]))

    def meeting_time(self, s: float) -> float:
        """Return about when the vehicle passes s [s]."""
        return s / self.speed

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
