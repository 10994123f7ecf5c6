"""The walk of a hand-held camera through a room."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcnn.simulate.mesh import Floats
from pcnn.simulate.rooms.room import Room
from pcnn.simulate.simulator import drawn

_CLEARANCE = 0.35  # [m] to the nearest surface, at the height of the camera
_NEAR, _FAR = 0.9, 2.9  # [m] distance at which an operator keeps the scanned surfaces


@dataclass(frozen=True)
class Motion:
    """How a person carries a camera."""

    turn_rate: float = drawn((0.01396, 0.02356))  # [rad] a frame
    speed: float = drawn((0.007, 0.015))  # [m] a frame
    height: float = drawn((1.15, 1.65))  # [m] of the camera above the floor
    tremor: float = drawn((0.002, 0.006))  # [m] amplitude of the hand's shaking
    sway: float = drawn((0.004, 0.012))  # [rad] amplitude of the hand's turning
    drift_shift: float = drawn((0.0002, 0.001))  # [m] a frame, error of the operator's estimate
    drift_turn: float = drawn((0.0001, 0.0005))  # [rad] a frame


def look(position: Floats, yaw: float, pitch: float, roll: float = 0.0) -> Floats:
    """Return the pose camera to room [4, 4]; camera axes are right, down, forward."""
    cy, sy, cp, sp = np.cos(yaw), np.sin(yaw), np.cos(pitch), np.sin(pitch)
    forward = np.array([cp * cy, cp * sy, sp])
    right = np.array([sy, -cy, 0.0])
    down = np.cross(forward, right)
    c, s = np.cos(roll), np.sin(roll)
    pose = np.eye(4)
    pose[:3, :4] = np.stack([c * right + s * down, c * down - s * right, forward, position], 1)
    return pose


def _view_distance(room: Room, position: Floats, yaw: float, pitch: float) -> float:
    """Return the median distance of the surfaces that a few rays of the view meet [m]."""
    turn = yaw + np.array([-0.35, 0.0, 0.35, -0.35, 0.0, 0.35])
    rise = pitch + np.array([-0.2, -0.2, -0.2, 0.2, 0.2, 0.2])
    rays = np.stack([np.cos(rise) * np.cos(turn), np.cos(rise) * np.sin(turn), np.sin(rise)], 1)
    return float(np.median(room.caster.first_faces(position, rays)[0]))


def _start(rng: np.random.Generator, room: Room, height: float) -> Floats:
    span = (room.settings.width, room.settings.depth)
    tried = np.column_stack([rng.uniform(0.3, np.array(span) - 0.3, (60, 2)), np.full(60, height)])
    free = room.clearance(tried)
    good = np.flatnonzero((free > _CLEARANCE + 0.1) & (free < 2.5))
    return np.asarray(tried[good[0] if len(good) else int(np.argmax(free))])


def _step(
    rng: np.random.Generator, room: Room, motion: Motion, last: Floats, side: float
) -> Floats:
    """Choose the next place and view: on the way, free, and at a distance worth scanning.

    A view is [6]: position, yaw, pitch, and the direction of walking.
    """
    span = np.array([room.settings.width, room.settings.depth])
    best, least = last, np.inf
    for attempt in range(14):
        angle = rng.uniform(0.25, 1.2)
        way = last[5] + rng.normal(0, 0.5 + 0.25 * attempt)
        # steps are taken while the view turns
        stride = rng.uniform(0.3, 1.0) * motion.speed * angle / motion.turn_rate
        ahead = np.array([np.cos(way), np.sin(way), 0.0])
        there = last[:3] + stride * ahead
        there[2] = motion.height + rng.normal(0, 0.12)
        yaw = last[3] + side * angle
        pitch = float(np.clip(rng.normal(-0.38, 0.28), -1.1, 0.35))
        blocked = room.caster.first_faces(last[:3], ahead[None])[0][0] < stride + _CLEARANCE
        inside = np.all(there[:2] > 0.2) and np.all(there[:2] < span - 0.2)
        stays = blocked or not inside or room.clearance(there[None], 12)[0] < _CLEARANCE
        if stays:
            there = last[:3]
        distance = _view_distance(room, there, yaw, pitch)
        miss = max(_NEAR - distance, distance - _FAR, 0.0) + 0.3 * stays
        if miss < least:
            best, least = np.array([*there, yaw, pitch, way]), miss
        if miss == 0.0:
            break
    return best


def walk_through(rng: np.random.Generator, room: Room, motion: Motion, frames: int) -> Floats:
    """Carry a camera through a room; returns its poses [frames, 4, 4].

    The operator pans over surfaces one to three metres away, takes small steps, turns back now
    and then, and shakes.
    """
    yaw, way = rng.uniform(-np.pi, np.pi, 2).tolist()
    side = float(rng.choice([-1, 1]))
    views, times = [np.array([*_start(rng, room, motion.height), yaw, -0.2, way])], [0.0]
    margin = 40  # frames beyond the end, for the smoothing
    while times[-1] < frames + 2 * margin:
        side = -side if rng.random() < 0.08 else side
        views.append(_step(rng, room, motion, views[-1], side))
        change = np.abs(views[-1] - views[-2])
        angle, length = float(np.linalg.norm(change[3:5])), float(np.linalg.norm(change[:3]))
        times.append(times[-1] + max(angle / motion.turn_rate, length / motion.speed, 8.0))
    at = np.arange(frames + 2 * margin, dtype=np.float64)
    track = [np.interp(at, times, column) for column in np.array(views).T[:5]]
    shaking = 2.2 * rng.standard_normal((6, len(at)))
    scale = np.array([motion.tremor] * 3 + [motion.sway] * 3)
    views = list(np.stack([_smooth(column, 31) for column in track], 1)[margin : margin + frames])
    shakes = (np.stack([_smooth(column, 9) for column in shaking], 1) * scale)[margin:]
    return np.stack(
        [
            look(view[:3] + shake[:3], view[3] + shake[3], view[4] + shake[4], 2 * shake[5])
            for view, shake in zip(views, shakes, strict=False)
        ]
    )


def _smooth(values: Floats, width: int) -> Floats:
    return np.convolve(values, np.hanning(width) / np.hanning(width).sum(), "same")
