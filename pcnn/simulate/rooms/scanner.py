"""A scanner on a tripod that sees a room in colour from several places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.mesh import Floats
from pcnn.simulate.rooms.paint import colours
from pcnn.simulate.rooms.room import Room

_NOISE = 0.0025  # [m] of a range
_REGISTRATION = 0.004  # [m] of a station, along each axis
_GRAZING = 0.15  # rays are lost more and more often below this cosine of incidence
_NADIR = np.radians(-80.0)  # rays lower than this meet the tripod
_REACH = 3.5  # [m] at which the rays of a station lie one spacing apart
_FEWEST_RAYS, _MOST_RAYS = 20_000, 1_500_000


@dataclass(frozen=True, eq=False)
class RoomCloud:
    """A labelled cloud of one room."""

    points: NDArray[np.float32]  # [N, 3] metres, in the room
    colours: NDArray[np.uint8]  # [N, 3]
    labels: NDArray[np.int16]  # [N] 0..12
    instances: NDArray[np.int32]  # [N] 0, 1, ... objects of one class each


def _stations(rng: np.random.Generator, room: Room) -> Floats:
    """Places far from one another and from all that stands in the room."""
    s = room.settings
    tried = rng.uniform((0.3, 0.3, 1.35), (s.width - 0.3, s.depth - 0.3, 1.65), (60, 3))
    free = room.clearance(tried, 12)
    chosen = [int(np.argmax(free))]
    while len(chosen) < np.clip(round(s.area / 8), 2, 14):
        gap = np.linalg.norm(tried[:, None] - tried[chosen][None], axis=2).min(1)
        chosen.append(int(np.argmax(gap * (free > 0.3) + 1e-3 * free)))
    return np.asarray(tried[chosen])


def brightness(room: Room, points: Floats, normals: Floats) -> Floats:
    """The brightness [P] of points under the room's lamps, by Lambert's law.

    It is 0.35 without light, 1 at the mean of the points, and 1.65 at most.
    """
    total = np.zeros(len(points))
    for lamp in room.lights:
        way = lamp - points
        square = np.einsum("pc,pc->p", way, way)
        slant = np.abs(np.einsum("pc,pc->p", way, normals)) / np.sqrt(square)
        total += slant / (1.0 + square)
    return 0.35 + 0.65 * np.minimum(total / max(float(total.mean()), 1e-9), 2.0)


def scan_room(rng: np.random.Generator, room: Room, spacing: float) -> RoomCloud:
    """Scan a room from every station; points lie about `spacing` [m] apart."""
    places, hits, shades, taken = [], [], [], np.zeros(0, np.int64)
    count = int(np.clip(4 * np.pi * (_REACH / spacing) ** 2, _FEWEST_RAYS, _MOST_RAYS))
    turn = np.arange(count) * np.pi * (3 - np.sqrt(5))  # a Fibonacci lattice on the sphere
    rise = np.arcsin(1 - 2 * (np.arange(count) + 0.5) / count)
    turn, rise = turn[rise > _NADIR], rise[rise > _NADIR]
    rays = np.stack([np.cos(rise) * np.cos(turn), np.cos(rise) * np.sin(turn), np.sin(rise)], 1)
    returns = np.array([paint.returns for paint in room.paints])
    # the colour camera of a room: factors on red, green and blue, its contrast and its noise
    warm = np.array([1.0, 1.0 - 0.06 * room.settings.warmth, 1.0 - 0.22 * room.settings.warmth])
    balance = warm * rng.uniform(0.65, 1.05) * np.exp(rng.normal(0, 0.05, 3))
    gamma, grain = rng.uniform((0.75, 0.003), (1.35, 0.03)).tolist()
    for station in _stations(rng, room):
        distance, face = room.caster.first_faces(station, rays)
        noise, luck = rng.standard_normal(len(rays)), rng.random(len(rays))
        exposure = rng.uniform(0.85, 1.15) * room.settings.brightness
        seen = (face >= 0) & (distance > 0.3)
        slant = np.abs(np.einsum("rc,rc->r", rays, room.normals[np.maximum(face, 0)]))
        seen &= slant > _GRAZING * rng.random(len(rays))
        # glass and mirrors answer now and then; colour cameras see all the rest
        seen &= luck < np.maximum(returns[room.mesh.materials[np.maximum(face, 0)]], 0.25)
        exact = station + rays[seen] * distance[seen, None]
        points = exact + rays[seen] * (_NOISE * noise[seen, None])
        points += rng.normal(0, _REGISTRATION, 3)
        face = face[seen]
        cells = np.floor(points / spacing).astype(np.int64) + (1 << 18)
        key = (cells[:, 0] << 40) | (cells[:, 1] << 20) | cells[:, 2]
        key, first = np.unique(key, return_index=True)
        new = ~np.isin(key, taken, assume_unique=True)
        taken, first = np.concatenate([taken, key[new]]), first[new]
        tint = colours(room.paints, room.mesh.materials[face[first]], exact[first])
        light = brightness(room, exact[first], room.normals[face[first]])
        places.append(points[first])
        hits.append(face[first])
        seen_light = (tint * light[:, None] * exposure * balance) ** gamma
        shades.append(seen_light + rng.normal(0, grain, tint.shape))
    face = np.concatenate(hits)
    _, instances = np.unique(room.mesh.instances[face], return_inverse=True)
    return RoomCloud(
        points=np.concatenate(places).astype(np.float32),
        colours=np.rint(255 * np.clip(np.concatenate(shades), 0, 1)).astype(np.uint8),
        labels=room.mesh.labels[face].astype(np.int16),
        instances=instances.reshape(-1).astype(np.int32),
    )
