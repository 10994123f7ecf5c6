"""Triangles of simple shapes, all [F, 3, 3] float64 in metres; x forward, y left, z up.

Where a point is asked for, several points [N, 3] make N shapes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcnn.simulate.mesh import Floats

# the eight corners of a box are numbered 4 * (x high) + 2 * (y high) + (z high)
_BOX_FACES = np.array(
    [
        [0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5],
        [0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6],
        [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3],
    ]
)  # fmt: skip
_HALVES = np.array([[0, 1, 2], [0, 2, 3]])
_HIGH = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], bool)


def quads(corners: ArrayLike) -> Floats:
    """Split faces of four corners [..., 4, 3] into triangles."""
    face = np.asarray(corners, np.float64).reshape(-1, 4, 3)
    return face[:, _HALVES].reshape(-1, 3, 3)


def grid(points: Floats) -> Floats:
    """Make triangles of grids of points [..., U, V, 3]."""
    a, b = points[..., :-1, :-1, :], points[..., 1:, :-1, :]
    c, d = points[..., 1:, 1:, :], points[..., :-1, 1:, :]
    return quads(np.stack([a, b, c, d], -2))


def block(low: ArrayLike, high: ArrayLike) -> Floats:
    """Make boxes from their lowest and highest corners [3] or [N, 3]."""
    corners = np.where(_HIGH, np.expand_dims(high, -2), np.expand_dims(low, -2))  # [N, 8, 3]
    return corners.reshape(-1, 8, 3)[:, _BOX_FACES].reshape(-1, 3, 3).astype(np.float64)


def box(centre: ArrayLike, size: ArrayLike) -> Floats:
    """Make boxes from centres and sizes, [3] or [N, 3] each."""
    middle, half = np.asarray(centre, np.float64), np.asarray(size, np.float64) / 2
    return block(middle - half, middle + half)


def prism(outline: ArrayLike, y0: float, y1: float) -> Floats:
    """Draw a star-shaped outline [(x, z)] along y from y0 to y1."""
    points = np.asarray(outline, np.float64)
    ring = np.insert(np.concatenate([points, points[:1]]), 1, 0.0, axis=1)  # [M + 1, 3]
    low, high = (ring + np.array([0.0, y, 0.0]) for y in (y0, y1))
    caps = []
    for end in (low, high):
        middle = np.broadcast_to(end[:-1].mean(0), end[:-1].shape)
        caps.append(np.stack([middle, end[:-1], end[1:]], 1))
    return np.concatenate([grid(np.stack([low, high])), *caps])


def tube(
    start: ArrayLike,
    end: ArrayLike,
    radius: ArrayLike,
    end_radius: ArrayLike | None = None,
    sides: int = 7,
) -> Floats:
    """Make closed cone stumps between points [3] or [N, 3]; a wheel is a short tube along y."""
    a, b = np.broadcast_arrays(np.atleast_2d(start).astype(float), np.atleast_2d(end).astype(float))
    axis = (b - a) / np.linalg.norm(b - a, axis=1, keepdims=True)
    # the world axis that is least parallel to the tube spans its cross-section
    across = np.eye(3)[np.abs(axis).argmin(1)]
    across = across - (across * axis).sum(1, keepdims=True) * axis
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    angle = np.arange(int(sides))[:, None, None] * (2 * np.pi / sides)
    ring = np.cos(angle) * across + np.sin(angle) * np.cross(axis, across)  # [S, N, 3]
    first = np.reshape(radius, (-1, 1))
    last = first if end_radius is None else np.reshape(end_radius, (-1, 1))
    corners = np.concatenate([a + first * ring, b + last * ring, [a, b]])
    return corners[_tube_faces(int(sides))].swapaxes(1, 2).reshape(-1, 3, 3)


@lru_cache(maxsize=64)
def _tube_faces(sides: int) -> NDArray[np.int64]:
    """Number the corners [2 * sides + 2, 3] of a tube's triangles: side faces, then two caps."""
    here = np.arange(sides)
    there = (here + 1) % sides
    first, last = np.full(sides, 2 * sides), np.full(sides, 2 * sides + 1)
    faces = [
        (here, there, there + sides),
        (here, there + sides, here + sides),
        (first, here, there),
        (last, here + sides, there + sides),
    ]
    return np.concatenate([np.stack(face, 1) for face in faces])


def cushion(
    centre: ArrayLike,  # [3] or [N, 3]
    size: ArrayLike,  # [3] or [N, 3] full extents
    edge: float = 0.35,
    sides: int = 16,
) -> Floats:
    """Make superellipsoids: nearly boxes for a small `edge`, ellipsoids for 1.

    Source: A. H. Barr, Superquadrics and angle-preserving transformations (1981), Eq. 2.
    """
    unit = _superellipsoid(edge, int(sides))
    middle, extent = (np.asarray(v, np.float64)[..., None, None, :] for v in (centre, size))
    return grid(middle + unit * (extent / 2))


@lru_cache(maxsize=64)
def _superellipsoid(edge: float, sides: int) -> Floats:
    """The points [rings + 1, sides + 1, 3] of one of radius 1."""
    polar = np.linspace(-np.pi / 2, np.pi / 2, sides // 2 + 1)[:, None]
    angle = np.linspace(-np.pi, np.pi, sides + 1)[None, :]

    def power(value: Floats) -> Floats:
        return np.asarray(np.sign(value) * np.abs(value) ** edge)

    flat = power(np.cos(polar))
    height = power(np.sin(polar)) * np.ones_like(angle)
    return np.stack([flat * power(np.cos(angle)), flat * power(np.sin(angle)), height], -1)


def lathe(outline: ArrayLike, sides: int = 14) -> Floats:
    """Turn an outline [(radius, z)] about the z axis, as of cups, basins and lamps."""
    radius, z = np.asarray(outline, np.float64).T[:, :, None]
    angle = np.linspace(0, 2 * np.pi, sides + 1)
    return grid(np.stack([radius * np.cos(angle), radius * np.sin(angle), z + 0 * angle], -1))


def leaves(
    rng: np.random.Generator, centre: ArrayLike, radii: ArrayLike, count: float, leaf: float
) -> Floats:
    """Scatter `count` triangles of about `leaf` metres through each ellipsoid [3] or [N, 3]."""
    middle, reach = np.atleast_2d(centre), np.atleast_2d(radii)
    clumps = max(len(middle), len(reach))
    place = rng.normal(0, 1, (clumps, int(count), 3))
    # no further than the hull, and denser towards it than a ball that is filled evenly
    place *= rng.random((clumps, int(count), 1)) ** 0.4 / np.linalg.norm(place, axis=2)[..., None]
    place = (middle[:, None] + place * reach[:, None]).reshape(-1, 3)
    axes = rng.normal(0, 1, (len(place), 2, 3))
    axes *= leaf / 2 * rng.uniform(0.6, 1.4, (len(place), 1, 1))
    return np.stack([place - axes[:, 0], place + axes[:, 1], place + axes[:, 0]], 1)


def turned(triangles: Floats, axis: str, angle: float, pivot: ArrayLike) -> Floats:
    """Turn triangles about an axis `x`, `y` or `z` through a point [rad]."""
    c, s = np.cos(angle), np.sin(angle)
    turn = np.eye(3)
    a, b = [i for i in range(3) if i != "xyz".index(axis)]
    turn[a, a], turn[a, b], turn[b, a], turn[b, b] = c, -s, s, c
    centre = np.asarray(pivot, np.float64)
    return (triangles - centre) @ turn.T + centre


#: shapes by the names that catalogues use
SHAPES: dict[str, Callable[..., Floats]] = {
    f.__name__: f for f in (quads, block, box, prism, tube, cushion, lathe)
}
