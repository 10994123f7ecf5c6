"""Trees, conifers, bushes and hedges: wood as triangles, leaves as volumes."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.materials import Material
from pcnn.simulate.mesh import join, surface
from pcnn.simulate.primitives import tube
from pcnn.simulate.streets.foliage import Plant, box_of_leaves, ellipsoids
from pcnn.simulate.streets.raw_ids import RawId


def tree(rng: np.random.Generator, density: float) -> Plant:
    """Make a tree: a leaning, tapering trunk that forks, and a crown of several clumps of leaves.

    Args:
        rng: shape.
        density: leaves met on a metre of the way through a crown.
    """
    height = float(rng.uniform(4.5, 11.0))
    radius = float(rng.uniform(0.09, 0.14) + 0.012 * height * rng.random())
    bare = float(rng.uniform(1.2, min(2.8, 0.4 * height)))  # [m] of trunk under the crown
    lean = rng.normal(0, 0.03, 2)
    fork = np.array([lean[0] * bare, lean[1] * bare, bare + 0.4])
    wood = [
        tube((0, 0, -0.4), (0, 0, 0.25), radius * 1.5, radius * 1.05, sides=9),
        tube((0, 0, 0.1), fork, radius, radius * 0.75, sides=9),
    ]
    spread = float(rng.uniform(0.15, 0.26) * height)
    clumps = int(rng.integers(5, 9))
    centres, radii = np.empty((clumps, 3)), np.empty((clumps, 3))
    for n in range(clumps):
        side = rng.uniform(-1, 1, 2) * spread
        centres[n] = [fork[0] + side[0], fork[1] + side[1], rng.uniform(bare + 0.7, height - 0.8)]
        radii[n] = rng.uniform(0.45, 0.75, 3) * (0.7 + 0.7 * spread)
        if n < 4:  # the others are hidden in leaves
            wood.append(tube(fork, centres[n], radius * 0.45, radius * 0.12, sides=5))
    # twigs hang down to where the trunk forks
    centres[0] = [fork[0], fork[1], bare + 0.7]
    radii[0] = [spread, spread, 0.7]
    return Plant(
        surface(np.concatenate(wood), Material.BARK, RawId.TRUNK),
        ellipsoids(centres, radii, density * rng.uniform(0.7, 1.3, clumps)),
    )


def conifer(rng: np.random.Generator, density: float) -> Plant:
    """Make a conifer: a trunk in a cone of flat tiers that begins at 0.2-0.8 m."""
    height, foot = float(rng.uniform(3.5, 9.0)), float(rng.uniform(0.2, 0.8))
    width = float(rng.uniform(0.14, 0.22) * height)
    level = np.linspace(0.0, 0.92, 6)
    z = foot + (level + 0.08) * (height - foot)
    reach = width * (1.0 - level) * rng.uniform(0.85, 1.15, 6)
    centres = np.stack([np.zeros(6), np.zeros(6), z], axis=1)
    radii = np.stack([reach, reach, np.full(6, 0.13 * (height - foot))], axis=1)
    trunk = tube((0, 0, -0.4), (0, 0, height * 0.8), 0.14, 0.04, sides=7)
    return Plant(
        surface(trunk, Material.BARK, RawId.TRUNK), ellipsoids(centres, radii, 1.6 * density)
    )


def bush(rng: np.random.Generator, density: float) -> Plant:
    """Make a bush of 0.7-2.2 m from two to four clumps that touch the ground."""
    clumps = int(rng.integers(2, 5))
    radii = rng.uniform((0.4, 0.4, 0.35), (1.0, 1.0, 1.0), (clumps, 3))
    centres = np.concatenate([rng.uniform(-0.6, 0.6, (clumps, 2)), 0.8 * radii[:, 2:]], axis=1)
    return Plant(join([]), ellipsoids(centres, radii, 2.0 * density))


def hedge(rng: np.random.Generator, length: float, density: float) -> Plant:
    """Make a hedge along +x from the origin, 0.9-2.3 m high, clipped or grown out."""
    height, depth = float(rng.uniform(0.9, 2.3)), float(rng.uniform(0.5, 1.1))
    middle = (length / 2, 0.0, height / 2)
    if rng.random() < 0.6:
        return Plant(
            join([]), box_of_leaves(middle, (length / 2, depth / 2, height / 2), 3.0 * density)
        )
    count = max(int(length / 0.9), 1)
    x = (np.arange(count) + 0.5) * length / count
    radii = np.stack(
        [
            np.full(count, 0.75 * length / count),
            rng.uniform(0.45, 0.75, count) * depth,
            rng.uniform(0.42, 0.6, count) * height,
        ],
        axis=1,
    )
    centres = np.stack([x, rng.normal(0, 0.08, count), 0.45 * np.full(count, height)], axis=1)
    return Plant(join([]), ellipsoids(centres, radii, 2.5 * density))
