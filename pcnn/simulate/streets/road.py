"""The course of a road: street coordinates (s along, d to the left, z up) to world coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pcnn.simulate.mesh import Floats


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
        """Draw a course."""

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
        """Return the slope dz / ds at s."""
        return self._sum(self.roll, s, derivative=True)

    def _profile(self, s: Floats, d: Floats) -> Floats:
        """Height of the surface at d above the centre line [m]; level beyond the gardens."""
        tilt = self._sum(self.tilt, s, derivative=False) * np.clip(d, -25.0, 25.0)
        fall = np.sqrt(np.minimum(np.abs(d), 10.0) ** 2 + 1.0) - 1.0
        return np.asarray(tilt - self.crown * fall)

    def cross_slope(self, s: float, d: float) -> float:
        """Return the slope to the left of the surface at (s, d)."""
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
