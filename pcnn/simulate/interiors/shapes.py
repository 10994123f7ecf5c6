"""Rounded and soft shapes, all triangles [F, 3, 3] in metres, z up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pcnn.simulate.mesh import Floats, Mesh
from pcnn.simulate.primitives import quads


def painted(triangles: Floats, paint: int, element: int) -> Mesh:
    """Make a mesh of one paint of the room's palette and one class."""
    count = len(triangles)
    return Mesh(
        triangles=np.asarray(triangles, np.float64).reshape(count, 3, 3),
        raw_ids=np.full(count, element, np.uint16),
        materials=np.full(count, paint, np.uint8),
        instances=np.zeros(count, np.uint16),
    )


def grid_faces(points: Floats) -> Floats:
    """Make triangles of a grid of points [U, V, 3]."""
    corners = [points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]]
    return quads(np.stack(corners, -2).reshape(-1, 4, 3))


def cushion(
    centre: Sequence[float],
    size: Sequence[float],
    edge: float = 0.35,
    sides: int = 16,
    bumps: ArrayLike = 0.0,
) -> Floats:
    """Make a superellipsoid: nearly a box for a small `edge`, an ellipsoid for 1.

    Args:
        centre: [3].
        size: [3] full extents.
        edge: exponent of the roundness, 0.1 to 1.
        sides: meridians; half as many rings.
        bumps: [rings + 1, sides + 1] or a number: relative outward displacement.

    Source: A. H. Barr, Superquadrics and angle-preserving transformations (1981), Eq. 2.
    """
    polar = np.linspace(-np.pi / 2, np.pi / 2, sides // 2 + 1)[:, None]
    angle = np.linspace(-np.pi, np.pi, sides + 1)[None, :]

    def power(value: Floats) -> Floats:
        return np.asarray(np.sign(value) * np.abs(value) ** edge)

    unit = np.stack(
        [
            power(np.cos(polar)) * power(np.cos(angle)),
            power(np.cos(polar)) * power(np.sin(angle)),
            power(np.sin(polar)) * np.ones_like(angle),
        ],
        -1,
    )
    unit = unit * (1 + np.broadcast_to(bumps, unit.shape[:2]))[..., None]
    return grid_faces(np.asarray(centre) + unit * (np.asarray(size, np.float64) / 2))


def heap(
    rng: np.random.Generator, centre: Sequence[float], size: Sequence[float], roughness: float
) -> Floats:
    """Make a crumpled lump, as of a bag, a coat or a pile of laundry."""
    sides, rings = 20, 11
    angle = np.linspace(0, 2 * np.pi, sides + 1)
    polar = np.linspace(0, np.pi, rings)[:, None]
    bumps = np.zeros((rings, sides + 1))
    for order in range(2, 6):
        phases = rng.uniform(0, 2 * np.pi, 2)
        wave = np.sin(order * angle + phases[0]) * np.sin(order * polar + phases[1])
        bumps += rng.normal(0, roughness / order) * wave * np.sin(polar)
    return cushion(centre, size, edge=0.8, sides=sides, bumps=bumps)


def lathe(profile: ArrayLike, sides: int = 14) -> Floats:
    """Turn an outline [(radius, z)] about the z axis, as of cups, vases, basins and lamps."""
    outline = np.asarray(profile, np.float64)  # [M, 2]
    angle = np.linspace(0, 2 * np.pi, sides + 1)
    ring = np.stack([np.cos(angle), np.sin(angle)], -1)  # [S + 1, 2]
    points = np.empty((len(outline), sides + 1, 3))
    points[..., :2] = outline[:, None, :1] * ring
    points[..., 2] = outline[:, 1:]
    return grid_faces(points)


def sheet(
    rng: np.random.Generator, width: float, height: float, folds: int, depth: float
) -> Floats:
    """Make a hanging cloth in the x-z plane from z = 0 down to -height, centred in x."""
    steps = 6 * max(folds, 1)
    x = np.linspace(-width / 2, width / 2, steps + 1)
    z = np.linspace(0, -height, 7)
    phase = rng.uniform(0, 2 * np.pi)
    slant = rng.normal(0, 0.4)
    wave = np.sin(2 * np.pi * folds * x[:, None] / width + phase + slant * z)
    grown = 0.4 + 0.6 * (-z / height)  # folds open towards the hem
    points = np.empty((len(x), len(z), 3))
    points[..., 0] = x[:, None]
    points[..., 1] = depth * wave * grown
    points[..., 2] = z
    return grid_faces(points)


def sloped(triangles: Floats, axis: int, angle: float, pivot: Sequence[float]) -> Floats:
    """Turn triangles about an axis (0: x, 1: y, 2: z) through a point [rad]."""
    c, s = np.cos(angle), np.sin(angle)
    turn = np.eye(3)
    a, b = [i for i in range(3) if i != axis]
    turn[a, a], turn[a, b], turn[b, a], turn[b, b] = c, -s, s, c
    centre = np.asarray(pivot, np.float64)
    return (triangles - centre) @ turn.T + centre
