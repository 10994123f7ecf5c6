"""One fragment: fifty frames of a hand-held depth camera, fused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.mesh import Floats
from pcnn.simulate.rooms.depth_camera import DepthCamera, measure
from pcnn.simulate.rooms.fusion import Fusion, voxel_samples
from pcnn.simulate.rooms.room import Room
from pcnn.simulate.settings import draw, drawn

FRAMES = 50  # that make one fragment


@dataclass(frozen=True)
class Drift:
    """Errors of the operator's pose estimates, which add up from frame to frame."""

    shift: float = drawn((0.0002, 0.001))  # [m] a frame
    turn: float = drawn((0.0001, 0.0005))  # [rad] a frame


def draw_drift(rng: np.random.Generator) -> Drift:
    """Draw the errors of one recording."""
    return Drift(**draw(rng, Drift))


def _small_motion(turn: Floats, shift: Floats) -> Floats:
    """Return the rigid motion [4, 4] of a rotation vector (Rodrigues' formula) and a shift."""
    angle = float(np.linalg.norm(turn))
    x, y, z = turn / max(angle, 1e-12)
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    motion = np.eye(4)
    motion[:3, :3] += np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    motion[:3, 3] = shift
    return motion


def drifted(rng: np.random.Generator, poses: Floats, drift: Drift) -> Floats:
    """Return pose estimates whose errors grow like a random walk; the first is exact."""
    error = np.eye(4)
    estimates = [poses[0]]
    for pose in poses[1:]:
        turn, shift = rng.standard_normal((2, 3))
        error = error @ _small_motion(drift.turn * turn, drift.shift * shift)
        estimates.append(pose @ error)
    return np.stack(estimates)


def take_fragment(
    rng: np.random.Generator,
    room: Room,
    camera: DepthCamera,
    poses: Floats,
    drift: Drift,
    fuse: Fusion = voxel_samples,
) -> NDArray[np.float64]:
    """Record frames along poses and fuse them as the operator would, not knowing the truth.

    Args:
        rng: noise and drift.
        room: that is recorded.
        camera: that records.
        poses: true poses camera to room [F, 4, 4].
        drift: of the pose estimates.
        fuse: the way of fusing.

    Returns:
        [N, 3] points in the frame of the first camera, whose pose is exactly `poses[0]`.
    """
    images = [measure(rng, camera, room, pose) for pose in poses]
    back = np.linalg.inv(poses[0])
    return fuse(camera, images, [back @ pose for pose in drifted(rng, poses, drift)])
