"""Triangles of simple shapes, all [F, 3, 3] float64 in metres; x forward, y left, z up.

Where a point is asked for, several points [N, 3] make N shapes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
_EYE = np.eye(3)
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


def frustum(low: Sequence[float], high: Sequence[float], z: Sequence[float]) -> Floats:
    """Make a block between the rectangles (x0, x1, y0, y1) `low` at z[0] and `high` at z[1]."""
    ends = np.array([low, high])[_HIGH[:, 2].astype(int)]  # [8, 4]
    corners = np.stack(
        [
            np.where(_HIGH[:, 0], ends[:, 1], ends[:, 0]),
            np.where(_HIGH[:, 1], ends[:, 3], ends[:, 2]),
            np.where(_HIGH[:, 2], z[1], z[0]),
        ],
        axis=1,
    )
    return np.asarray(corners[_BOX_FACES])


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
    a, b = np.asarray(start, np.float64), np.asarray(end, np.float64)
    axis = np.atleast_2d(b - a)
    axis = axis / np.sqrt((axis * axis).sum(1, keepdims=True))
    # the world axis that is least parallel to the tube spans its cross-section
    across = _EYE[np.abs(axis).argmin(1)]
    across = across - (across * axis).sum(1, keepdims=True) * axis
    across /= np.sqrt((across * across).sum(1, keepdims=True))
    (x, y, z), (u, v, w) = axis.T, across.T
    along = np.array([y * w - z * v, z * u - x * w, x * v - y * u]).T
    cosine, sine = _circle(sides)
    ring = cosine * across + sine * along  # [S, N, 3]
    first = np.reshape(radius, (-1, 1))
    last = first if end_radius is None else np.reshape(end_radius, (-1, 1))
    ends = np.empty((2, *axis.shape))
    ends[0], ends[1] = a, b
    corners = np.concatenate([ends[0] + first * ring, ends[1] + last * ring, ends])
    return corners[_tube_faces(sides)].swapaxes(1, 2).reshape(-1, 3, 3)


@lru_cache(maxsize=64)
def _circle(sides: int) -> tuple[Floats, Floats]:
    """Return cosines and sines [S, 1, 1] of the corners of a regular polygon."""
    angle = np.arange(sides)[:, None, None] * (2 * np.pi / sides)
    return np.cos(angle), np.sin(angle)


@lru_cache(maxsize=64)
def _tube_faces(sides: int) -> NDArray[np.int64]:
    """Number the corners [4 * sides, 3] of a tube's triangles: side faces, then the two caps."""
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


def hoop(centre: Sequence[float], radius: float, thickness: float, sides: int = 12) -> Floats:
    angle = np.arange(sides + 1) * (2 * np.pi / sides)
    half = thickness / 2
    reach = radius - thickness * np.array([1, 0, 0, 1, 1])  # around the bar and back
    y = np.array([-half, -half, half, half, -half])
    x, z = np.cos(angle)[:, None] * reach, np.sin(angle)[:, None] * reach
    return grid(np.stack(np.broadcast_arrays(x, y, z), -1) + np.asarray(centre))


def cushion(
    centre: ArrayLike,  # [3] or [N, 3]
    size: ArrayLike,  # [3] or [N, 3] full extents
    edge: float = 0.35,
    sides: int = 16,
    bumps: Floats | None = None,  # [rings + 1, sides + 1] relative outward displacement
) -> Floats:
    """Make superellipsoids: nearly boxes for a small `edge`, ellipsoids for 1.

    Source: A. H. Barr, Superquadrics and angle-preserving transformations (1981), Eq. 2.
    """
    unit = _superellipsoid(edge, sides)
    if bumps is not None:
        unit = unit * (1 + bumps)[..., None]
    middle, extent = (np.asarray(v, np.float64)[..., None, None, :] for v in (centre, size))
    return grid(middle + unit * (extent / 2))


@lru_cache(maxsize=64)
def _superellipsoid(edge: float, sides: int) -> Floats:
    """Return the points [rings + 1, sides + 1, 3] of one of radius 1."""
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


def heap(
    rng: np.random.Generator, centre: Sequence[float], size: Sequence[float], roughness: float
) -> Floats:
    sides, rings = 20, 11
    angle = np.linspace(0, 2 * np.pi, sides + 1)
    polar = np.linspace(0, np.pi, rings)[:, None]
    bumps = np.zeros((rings, sides + 1))
    for order in range(2, 6):
        phases = rng.uniform(0, 2 * np.pi, 2)
        wave = np.sin(order * angle + phases[0]) * np.sin(order * polar + phases[1])
        bumps += rng.normal(0, roughness / order) * wave * np.sin(polar)
    return cushion(centre, size, edge=0.8, sides=sides, bumps=bumps)


def rumpled(rng: np.random.Generator, centre: Sequence[float], size: Sequence[float]) -> Floats:
    return cushion(centre, size, 0.2, 24, rng.normal(0, 0.012, (13, 25)))


def sheet(rng: np.random.Generator, width: float, height: float) -> Floats:
    folds, depth = max(int(width / 0.14), 2), rng.uniform(0.02, 0.05)
    x = np.linspace(-width / 2, width / 2, 6 * folds + 1)[:, None]
    z = np.linspace(0, -height, 7)
    phase, slant = rng.uniform(0, 2 * np.pi), rng.normal(0, 0.4)
    wave = np.sin(2 * np.pi * folds * x / width + phase + slant * z)
    grown = 0.4 + 0.6 * (-z / height)  # folds open towards the hem
    return grid(np.stack(np.broadcast_arrays(x, depth * wave * grown, z), -1))


def leaves(rng: np.random.Generator, height: float) -> Floats:
    count = int(60 + 120 * height)
    centre = rng.normal(0, 1, (count, 3)) * np.array([0.16, 0.16, 0.2]) * (0.5 + 0.6 * height)
    centre[:, 2] = np.abs(centre[:, 2]) * 1.4 + 0.25 * height
    axes = rng.normal(0, 1, (count, 2, 3))
    axes *= rng.uniform(0.03, 0.09, (count, 1, 1)) / np.linalg.norm(axes, axis=2, keepdims=True)
    return np.stack([centre - axes[:, 0], centre + axes[:, 1] * 0.4, centre + axes[:, 0]], 1)


def tub(size: Sequence[float]) -> Floats:
    """Make the rounded hollow of a bathtub that reaches down from z = size[2]."""
    hollow = cushion((0, 0, size[2]), (size[0], size[1], 1.5 * size[2]), 0.4, sides=20)
    return np.asarray(hollow[hollow[..., 2].max(1) <= size[2] + 1e-6])


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
    f.__name__: f for f in (quads, block, box, frustum, prism, tube, hoop, cushion, lathe, tub)
}
#: shapes that are drawn at random: their first argument is a random stream
RANDOM_SHAPES: dict[str, Callable[..., Floats]] = {
    f.__name__: f for f in (heap, rumpled, sheet, leaves)
}
