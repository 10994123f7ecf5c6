"""Triangles of simple shapes, all [F, 3, 3] float64 in metres; x forward, y left, z up."""

from __future__ import annotations

from collections.abc import Sequence
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
_UNIT_BOX = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])


def boxes(centres: ArrayLike, sizes: ArrayLike) -> Floats:
    """Make axis-aligned boxes from centres and sizes, both broadcast to [B, 3]."""
    centre, size = np.broadcast_arrays(np.atleast_2d(centres), np.atleast_2d(sizes))
    corners = centre[:, None, :] + size[:, None, :] * _UNIT_BOX  # [B, 8, 3]
    return np.asarray(corners[:, _BOX_FACES].reshape(-1, 3, 3), np.float64)


def box(low: Sequence[float], high: Sequence[float]) -> Floats:
    """Make one axis-aligned box from its lowest and highest corner."""
    a, b = np.asarray(low, np.float64), np.asarray(high, np.float64)
    return boxes((a + b) / 2, b - a)


def frustum(low: Sequence[float], high: Sequence[float], z: tuple[float, float]) -> Floats:
    """Make a block between the rectangles (x0, x1, y0, y1) `low` at z[0] and `high` at z[1]."""
    corners = np.empty((8, 3))
    for corner in range(8):
        rectangle, height = (high, z[1]) if corner & 1 else (low, z[0])
        corners[corner] = (
            rectangle[1] if corner & 4 else rectangle[0],
            rectangle[3] if corner & 2 else rectangle[2],
            height,
        )
    return np.asarray(corners[_BOX_FACES])


def extrusion(profile: ArrayLike, y0: float, y1: float) -> Floats:
    """Make a prism from a star-shaped outline [(x, z)] drawn along y from y0 to y1."""
    outline = np.asarray(profile, np.float64)  # [M, 2]
    following = np.roll(outline, -1, axis=0)
    centre = np.broadcast_to(outline.mean(0), outline.shape)

    def at(points: Floats, y: float) -> Floats:
        return np.stack([points[:, 0], np.full(len(points), y), points[:, 1]], axis=1)

    a0, b0, a1, b1 = at(outline, y0), at(following, y0), at(outline, y1), at(following, y1)
    caps = [np.stack([at(centre, y), a, b], 1) for y, a, b in ((y0, a0, b0), (y1, a1, b1))]
    return np.concatenate([np.stack([a0, b0, b1], 1), np.stack([a0, b1, a1], 1), *caps])


def tube(
    start: ArrayLike,
    end: ArrayLike,
    radius: float,
    end_radius: float | None = None,
    sides: int = 7,
) -> Floats:
    """Make a closed cone stump between two points; a wheel is a short tube along y."""
    a, b = np.asarray(start, np.float64), np.asarray(end, np.float64)
    axis = (b - a) / np.sqrt((b - a) @ (b - a))
    # the world axis that is least parallel to the tube spans its cross-section
    across = np.eye(3)[np.argmin(np.abs(axis))]
    across = across - (across @ axis) * axis
    across /= np.sqrt(across @ across)
    x, y, z = axis
    along = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]) @ across
    angle = np.arange(sides) * (2 * np.pi / sides)
    ring = np.cos(angle)[:, None] * across + np.sin(angle)[:, None] * along
    low = a + radius * ring
    high = b + (radius if end_radius is None else end_radius) * ring
    corners = np.concatenate([low, high, a[None], b[None]])  # [2 S + 2, 3]
    return np.asarray(corners[_tube_faces(sides)])


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
    """Make a ring in the x-z plane from square bars, as the tyre of a bicycle."""
    x, y, z = centre
    angle = np.arange(sides) * (2 * np.pi / sides)
    inner, outer = radius - thickness, radius
    following = np.roll(angle, -1)
    half = thickness / 2
    corners = np.empty((sides, 8, 3))
    for corner in range(8):
        turn = following if corner & 4 else angle
        reach = outer if corner & 1 else inner
        corners[:, corner, 0] = x + reach * np.cos(turn)
        corners[:, corner, 1] = y + (half if corner & 2 else -half)
        corners[:, corner, 2] = z + reach * np.sin(turn)
    return np.asarray(corners[:, _BOX_FACES].reshape(-1, 3, 3))


def ellipsoid(centre: Sequence[float], radii: Sequence[float], sides: int = 8) -> Floats:
    """Make an ellipsoid of `sides` meridians and half as many rings."""
    rings = max(sides // 2, 3)
    polar = np.linspace(0, np.pi, rings + 1)
    angle = np.arange(sides + 1) * (2 * np.pi / sides)
    unit = np.stack(
        [
            np.sin(polar)[:, None] * np.cos(angle),
            np.sin(polar)[:, None] * np.sin(angle),
            np.broadcast_to(np.cos(polar)[:, None], (rings + 1, sides + 1)),
        ],
        axis=-1,
    )
    grid = np.asarray(centre, np.float64) + unit * np.asarray(radii, np.float64)
    a, b, c, d = grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]
    return np.concatenate([np.stack([a, b, c], -2), np.stack([a, c, d], -2)]).reshape(-1, 3, 3)


def quads(corners: ArrayLike) -> Floats:
    """Split four-cornered faces [Q, 4, 3] into triangles [2 Q, 3, 3]."""
    face = np.asarray(corners, np.float64)
    return np.concatenate([face[:, [0, 1, 2]], face[:, [0, 2, 3]]])
