"""The drive of the sensor: where it is and how it is turned at 10 Hz."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcnn.simulate.mesh import Floats
from pcnn.simulate.streets.hdl64 import REVOLUTION
from pcnn.simulate.streets.road import Road
from pcnn.simulate.streets.sweep import Sweep

FRAME_RATE = 1.0 / REVOLUTION  # [Hz]


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
        position = self.road.bend(np.array([s, drift - self.lane, self.sensor_height]))
        pose = np.eye(4)
        pose[:3, :3] = _rotation(yaw, pitch, roll)
        pose[:3, 3] = position
        return pose

    def sweep(self, time: float) -> Sweep:
        """Return the motion during the revolution about `time` [s]."""
        half = REVOLUTION / 2
        return Sweep.between(self.pose(time - half), self.pose(time), self.pose(time + half))


def _rotation(yaw: float, pitch: float, roll: float) -> Floats:
    """Return Rz(yaw) Ry(pitch) Rx(roll)."""
    (cz, sz), (cy, sy), (cx, sx) = ((np.cos(a), np.sin(a)) for a in (yaw, pitch, roll))
    about_z = np.array([[cz, -sz, 0.0], [sz, cz, 0.0], [0.0, 0.0, 1.0]])
    about_y = np.array([[cy, 0.0, sy], [0.0, 1.0, 0.0], [-sy, 0.0, cy]])
    about_x = np.array([[1.0, 0.0, 0.0], [0.0, cx, -sx], [0.0, sx, cx]])
    return np.asarray(about_z @ about_y @ about_x)
