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
    s = room.settings
    count = int(np.clip(round(s.width * s.depth / 8), 2, 14))
    low, high = np.array([0.3, 0.3, 1.35]), np.array([s.width - 0.3, s.depth - 0.3, 1.65])
    tried = rng.uniform(low, high, (60, 3))
    free = room.clearance(tried, 12)
    tried = tried[np.argsort(-free, kind="stable")]
    tried = tried[: max(int((free > 0.3).sum()), count)]
    chosen = [0]
    while len(chosen) < count:
        gap = np.linalg.norm(tried[:, None] - tried[chosen][None], axis=2).min(1)
        chosen.append(int(np.argmax(gap)))
    return np.asarray(tried[chosen])


def brightness(room: Room, points: Floats, normals: Floats) -> Floats:
    """Return the brightness [P] of points under the room's lamps: Lambert's law and shadows.

    It is 0.35 without light, 1 at the mean of the points before shadows, and 1.65 at most.
    """
    total, best = np.zeros(len(points)), np.zeros(len(points))
    nearest = np.tile(room.lights[0], (len(points), 1))
    for lamp in room.lights:
        way = lamp - points
        square = np.einsum("pc,pc->p", way, way)
        slant = np.abs(np.einsum("pc,pc->p", way, normals)) / np.sqrt(square)
        share = slant / (1.0 + square)
        total += share
        nearest[share > best] = lamp
        best = np.maximum(best, share)
    # only the lamp that gives most casts a shadow: those of all would cost as much as the scan
    way = points - nearest
    reach = np.linalg.norm(way, axis=1)
    met, _ = room.caster.first_faces(nearest - (0.0, 0.0, 0.05), way / reach[:, None])
    mean = max(float(total.mean()), 1e-9)
    total -= 0.7 * best * (met < reach - 0.15)
    return 0.35 + 0.65 * np.minimum(total / mean, 2.0)


@dataclass(frozen=True, eq=False)
class _Camera:
    """A colour camera, which changes the light of a scene; each room has its own."""

    balance: Floats  # [3] factors, exposure among them, on red, green, blue
    saturation: float
    gamma: float
    grain: float  # standard deviation of the noise of a point
    waves: Floats  # [W, 3] wave numbers of slow changes of the light [1/m]
    phases: Floats  # [W]
    uneven: float  # largest share of the light that such a wave takes or gives

    @staticmethod
    def drawn(rng: np.random.Generator, warmth: float) -> _Camera:
        warm = np.array([1.0, 1.0 - 0.06 * warmth, 1.0 - 0.22 * warmth])
        return _Camera(
            warm * rng.uniform(0.65, 1.05) * np.exp(rng.normal(0, 0.05, 3)),
            rng.uniform(0.5, 1.15),
            rng.uniform(0.75, 1.35),
            rng.uniform(0.003, 0.03),
            rng.normal(0, 1.2, (4, 3)),
            rng.uniform(0, 2 * np.pi, 4),
            rng.uniform(0.0, 0.12),
        )

    def colours(self, rng: np.random.Generator, light: Floats, points: Floats) -> Floats:
        """Return the colours [P, 3] of light [P, 3] from points [P, 3], with noise."""
        slow = np.sin(points @ self.waves.T + self.phases).sum(1)
        seen = light * (1 + self.uneven * slow)[:, None] * self.balance
        grey = seen.mean(1, keepdims=True)
        seen = np.clip(grey + self.saturation * (seen - grey), 0, None) ** self.gamma
        blot = rng.normal(0, self.grain, (len(points), 1))  # brightness varies more than hue
        return np.asarray(seen + blot + rng.normal(0, 0.4 * self.grain, points.shape))


def scan_room(rng: np.random.Generator, room: Room, spacing: float) -> RoomCloud:
    if not spacing > 0:
        raise ValueError(f"spacing={spacing}: give the distance of points in metres, above 0")
    places, hits, shades, taken = [], [], [], np.zeros(0, np.int64)
    count = int(np.clip(4 * np.pi * (_REACH / spacing) ** 2, _FEWEST_RAYS, _MOST_RAYS))
    turn = np.arange(count) * np.pi * (3 - np.sqrt(5))  # a Fibonacci lattice on the sphere
    rise = np.arcsin(1 - 2 * (np.arange(count) + 0.5) / count)
    turn, rise = turn[rise > _NADIR], rise[rise > _NADIR]
    rays = np.stack([np.cos(rise) * np.cos(turn), np.cos(rise) * np.sin(turn), np.sin(rise)], 1)
    returns = np.array([paint.returns for paint in room.paints])
    camera = _Camera.drawn(rng, room.settings.warmth)
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
        shades.append(camera.colours(rng, tint * light[:, None] * exposure, exact[first]))
    face = np.concatenate(hits)
    _, instances = np.unique(room.mesh.instances[face], return_inverse=True)
    return RoomCloud(
        points=np.concatenate(places).astype(np.float32),
        colours=np.rint(255 * np.clip(np.concatenate(shades), 0, 1)).astype(np.uint8),
        labels=room.mesh.labels[face].astype(np.int16),
        instances=instances.reshape(-1).astype(np.int32),
    )
