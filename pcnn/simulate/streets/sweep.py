"""The motion of the sensor during one revolution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcnn.simulate.mesh import Floats


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
        turn = 0.5 * np.array(
            [spin[2, 1] - spin[1, 2], spin[0, 2] - spin[2, 0], spin[1, 0] - spin[0, 1]]
        )
        return Sweep(pose, last[:3, 3] - first[:3, 3], turn)

    def moved(self, points: Floats, phase: Floats) -> Floats:
        """Map points [N, 3] from the sensor's frame at their phase [N] to its frame at phase 0."""
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

    def deskewed(self, points: Floats, phase: Floats, share: float) -> Floats:
        """Take a share of the motion out of points [N, 3] measured at their phase [N].

        A share of 1 gives them in the frame at phase 0; 0 leaves them as they were measured.
        """
        return self.moved(points, share * phase)


def _cross(a: Floats, b: Floats) -> Floats:
    """Return the vector products of rows [N, 3]; numpy's own takes three times as long."""
    (x, y, z), (u, v, w) = a.T, b.T
    return np.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=1)
