"""A scanner on a tripod that sees a room in colour from several places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.mesh import Floats
from pcnn.simulate.rooms.paint import colours
from pcnn.simulate.rooms.room import Room

_NOISE = 0.0025  # [m] of a range
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
    """Choose free places, one for every eight square metres or so, far from one another."""
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


def _light(room: Room, points: Floats, normals: Floats) -> Floats:
    """Return the brightness [P] of points under the room's lamps: Lambert's law and a floor."""
    total = np.zeros(len(points))
    for lamp in room.lights:
        way = lamp - points
        square = np.einsum("pc,pc->p", way, way)
        slant = np.abs(np.einsum("pc,pc->p", way, normals)) / np.sqrt(square)
        total += slant / (1.0 + square)
    mean = max(float(total.mean()), 1e-9)
    return 0.5 + 0.5 * np.minimum(total / mean, 2.0)


def scan_room(rng: np.random.Generator, room: Room, spacing: float) -> RoomCloud:
    """Scan a room from several stations and thin the cloud to one point a cell.

    Args:
        rng: stations, noise and exposure.
        room: to scan.
        spacing: edge of the cells of which one point each is kept [m].

    Returns:
        The labelled, coloured cloud; labels are those of S3DIS.

    Raises:
        ValueError: a spacing that is not positive.
    """
    if not spacing > 0:
        raise ValueError(f"spacing={spacing}: give the distance of points in metres, above 0")
    places, hits, shades, taken = [], [], [], np.zeros(0, np.int64)
    count = int(np.clip(4 * np.pi * (_REACH / spacing) ** 2, _FEWEST_RAYS, _MOST_RAYS))
    turn = np.arange(count) * np.pi * (3 - np.sqrt(5))  # a Fibonacci lattice on the sphere
    rise = np.arcsin(1 - 2 * (np.arange(count) + 0.5) / count)
    turn, rise = turn[rise > _NADIR], rise[rise > _NADIR]
    rays = np.stack([np.cos(rise) * np.cos(turn), np.cos(rise) * np.sin(turn), np.sin(rise)], 1)
    returns = np.array([paint.returns for paint in room.paints])
    warm = np.array([1.0, 1.0 - 0.06 * room.settings.warmth, 1.0 - 0.22 * room.settings.warmth])
    for station in _stations(rng, room):
        distance, face = room.caster.first_faces(station, rays)
        noise, luck = rng.standard_normal(len(rays)), rng.random(len(rays))
        exposure = rng.uniform(0.85, 1.15) * warm * room.settings.brightness
        seen = (face >= 0) & (distance > 0.3)
        # glass and mirrors answer now and then; colour cameras see all the rest
        seen &= luck < np.maximum(returns[room.mesh.materials[np.maximum(face, 0)]], 0.25)
        exact = station + rays[seen] * distance[seen, None]
        points = exact + rays[seen] * (_NOISE * noise[seen, None])
        face = face[seen]
        cells = np.floor(points / spacing).astype(np.int64) + (1 << 18)
        key = (cells[:, 0] << 40) | (cells[:, 1] << 20) | cells[:, 2]
        key, first = np.unique(key, return_index=True)
        new = ~np.isin(key, taken, assume_unique=True)
        taken, first = np.concatenate([taken, key[new]]), first[new]
        tint = colours(room.paints, room.mesh.materials[face[first]], exact[first])
        light = _light(room, exact[first], room.normals[face[first]])
        grain = rng.normal(0, 0.02, (len(first), 3))
        places.append(points[first])
        hits.append(face[first])
        shades.append(tint * light[:, None] * exposure + grain)
    face = np.concatenate(hits)
    _, instances = np.unique(room.mesh.instances[face], return_inverse=True)
    return RoomCloud(
        points=np.concatenate(places).astype(np.float32),
        colours=np.rint(255 * np.clip(np.concatenate(shades), 0, 1)).astype(np.uint8),
        labels=room.mesh.labels[face].astype(np.int16),
        instances=instances.reshape(-1).astype(np.int32),
    )
