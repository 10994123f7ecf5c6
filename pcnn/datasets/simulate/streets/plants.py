"""Trees, bushes and hedges of many loose leaves, so that some rays pass through."""

from __future__ import annotations

import numpy as np

from pcnn.datasets.simulate.materials import Material
from pcnn.datasets.simulate.mesh import Floats, Mesh, join, surface
from pcnn.datasets.simulate.primitives import tube
from pcnn.datasets.simulate.streets.raw_ids import RawId


def leaves(rng: np.random.Generator, centres: Floats, size: float) -> Mesh:
    """Make one triangle of random attitude and of about `size` [m] round each centre [L, 3]."""
    corners = rng.normal(size=(len(centres), 3, 3))
    corners /= np.linalg.norm(corners, axis=2, keepdims=True)
    reach = size * rng.uniform(0.5, 1.1, (len(centres), 1, 1))
    return surface(centres[:, None, :] + corners * reach, Material.LEAF, RawId.VEGETATION)


def _in_ball(rng: np.random.Generator, count: int, inner: float) -> Floats:
    """Draw points of the unit ball, none closer to its centre than `inner`."""
    direction = rng.normal(size=(count, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return np.asarray(direction * rng.uniform(inner**3, 1.0, (count, 1)) ** (1 / 3))


def _clump(
    rng: np.random.Generator, centre: Floats, radii: Floats, density: float, size: float
) -> Mesh:
    """Leaves in an ellipsoid, more of them near its skin, as light lets them grow."""
    volume = 4.19 * float(np.prod(radii))
    count = int(np.clip(volume * density, 12, 2500))
    return leaves(rng, centre + _in_ball(rng, count, 0.45) * radii, size)


def tree(rng: np.random.Generator, density: float) -> Mesh:
    """Make a tree: a leaning, tapering trunk that forks, and a crown of a few clumps of leaves."""
    height = float(rng.uniform(4.5, 9.0))
    radius = float(rng.uniform(0.10, 0.24))
    bare = float(rng.uniform(1.2, 2.2))  # [m] of trunk under the crown
    lean = rng.normal(0, 0.03, 2)
    fork = np.array([lean[0] * bare, lean[1] * bare, bare + 0.4])
    wood = [
        tube((0, 0, -0.4), (0, 0, 0.25), radius * 1.5, radius * 1.05, sides=9),
        tube((0, 0, 0.1), fork, radius, radius * 0.75, sides=9),
    ]
    crown = []
    spread = float(rng.uniform(0.9, 1.5))
    for _ in range(int(rng.integers(3, 6))):
        side = rng.uniform(-1, 1, 2) * spread
        top = np.array(
            [fork[0] + side[0], fork[1] + side[1], rng.uniform(bare + 1.0, height - 1.0)]
        )
        wood.append(tube(fork, top, radius * 0.45, radius * 0.15, sides=5))
        radii = rng.uniform(0.8, 1.6, 3)
        crown.append(_clump(rng, top, radii, density, 0.16))
    # a few low twigs hang into the height that the sensor sees
    low = np.array([fork[0], fork[1], bare + 0.6])
    crown.append(_clump(rng, low, np.array([spread, spread, 0.8]), density, 0.14))
    return join([surface(np.concatenate(wood), Material.BARK, RawId.TRUNK), *crown])


def conifer(rng: np.random.Generator, density: float) -> Mesh:
    """Make a conifer whose cone of leaves begins at 0.3-1 m."""
    height, foot = float(rng.uniform(4.0, 8.0)), float(rng.uniform(0.3, 1.0))
    width = float(rng.uniform(0.9, 1.5))
    count = int(min(1.05 * width**2 * (height - foot) * density, 2500))
    level = 1 - np.sqrt(rng.uniform(0, 1, count))  # a cone holds most at its foot
    around = rng.uniform(0, 2 * np.pi, count)
    reach = width * (1 - level) * np.sqrt(rng.uniform(0.25, 1, count))
    centres = np.stack(
        [reach * np.cos(around), reach * np.sin(around), foot + level * (height - foot)], axis=1
    )
    trunk = tube((0, 0, -0.4), (0, 0, height * 0.8), 0.14, 0.04, sides=7)
    return join([surface(trunk, Material.BARK, RawId.TRUNK), leaves(rng, centres, 0.16)])


def bush(rng: np.random.Generator, density: float) -> Mesh:
    """Make a bush of 0.8-2 m from two or three clumps that touch the ground."""
    clumps = []
    for _ in range(int(rng.integers(2, 4))):
        radii = rng.uniform((0.4, 0.4, 0.35), (0.9, 0.9, 0.95))
        centre = np.array([*rng.uniform(-0.5, 0.5, 2), radii[2] * 0.8])
        clumps.append(_clump(rng, centre, radii, density * 2.2, 0.11))
    return join(clumps)


def hedge(rng: np.random.Generator, length: float, density: float) -> Mesh:
    """Make a clipped hedge along +x from the origin, 1.0-2.2 m high."""
    height, depth = float(rng.uniform(1.0, 2.2)), float(rng.uniform(0.6, 1.1))
    count = int(min(length * depth * height * density * 3.2, 6000))
    low, high = (0.0, -depth / 2, 0.05), (length, depth / 2, height)
    return leaves(rng, rng.uniform(low, high, (count, 3)), 0.11)
