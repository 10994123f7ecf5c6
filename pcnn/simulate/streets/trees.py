"""Trees, conifers, bushes and hedges: wood as triangles, leaves as volumes; and street trees.

`density` is the number of leaves met on a metre of the way through a crown.
"""

from __future__ import annotations

import numpy as np

from pcnn.simulate.mesh import join, surface
from pcnn.simulate.shapes import tube
from pcnn.simulate.streets.foliage import Plant, volumes
from pcnn.simulate.streets.layout import Side
from pcnn.simulate.streets.materials import MATERIALS
from pcnn.simulate.streets.raw_ids import RawId
from pcnn.simulate.streets.site import Site


def tree(rng: np.random.Generator, density: float) -> Plant:
    """Make a tree: a leaning, tapering trunk that forks, and a crown of several clumps."""
    height = rng.uniform(4.5, 11.0)
    radius = rng.uniform(0.09, 0.14) + 0.012 * height * rng.random()
    bare = rng.uniform(1.2, min(2.8, 0.4 * height))  # [m] of trunk under the crown
    fork = np.array([*(rng.normal(0, 0.03, 2) * bare), bare + 0.4])
    spread = rng.uniform(0.15, 0.26) * height
    clumps = int(rng.integers(5, 9))
    low, high = (-spread, -spread, bare + 0.7), (spread, spread, height - 0.8)
    centres = rng.uniform(low, high, (clumps, 3))
    centres[:, :2] += fork[:2]
    radii = rng.uniform(0.45, 0.75, (clumps, 3)) * (0.7 + 0.7 * spread)
    # twigs hang down to where the trunk forks
    centres[0], radii[0] = [fork[0], fork[1], bare + 0.7], [spread, spread, 0.7]
    wood = [
        tube((0, 0, -0.4), (0, 0, 0.25), radius * 1.5, radius * 1.05, sides=9),
        tube((0, 0, 0.1), fork, radius, radius * 0.75, sides=9),
        # the other branches are hidden in leaves
        tube(fork, centres[:4], radius * 0.45, radius * 0.12, sides=5),
    ]
    return Plant(
        surface(np.concatenate(wood), MATERIALS["bark"], RawId.TRUNK),
        volumes(centres, radii, density * rng.uniform(0.7, 1.3, clumps)),
    )


def conifer(rng: np.random.Generator, density: float) -> Plant:
    """Make a conifer: a trunk in a cone of flat tiers that begins at 0.2-0.8 m."""
    height, foot = rng.uniform(3.5, 9.0), rng.uniform(0.2, 0.8)
    width = rng.uniform(0.14, 0.22) * height
    level = np.linspace(0.0, 0.92, 6)
    z = foot + (level + 0.08) * (height - foot)
    reach = width * (1.0 - level) * rng.uniform(0.85, 1.15, 6)
    centres = np.stack([np.zeros(6), np.zeros(6), z], axis=1)
    radii = np.stack([reach, reach, np.full(6, 0.13 * (height - foot))], axis=1)
    trunk = tube((0, 0, -0.4), (0, 0, height * 0.8), 0.14, 0.04)
    wood = surface(trunk, MATERIALS["bark"], RawId.TRUNK)
    return Plant(wood, volumes(centres, radii, 1.6 * density))


def bush(rng: np.random.Generator, density: float, scale: float = 1.0) -> Plant:
    """Make a bush of 0.7-2.2 m from two to four clumps that touch the ground."""
    clumps = int(rng.integers(2, 5))
    radii = rng.uniform((0.4, 0.4, 0.35), (1.0, 1.0, 1.0), (clumps, 3))
    centres = np.concatenate([rng.uniform(-0.6, 0.6, (clumps, 2)), 0.8 * radii[:, 2:]], axis=1)
    return Plant(join([]), volumes(scale * centres, scale * radii, 2.0 * density))


def hedge(rng: np.random.Generator, length: float, density: float) -> Plant:
    """Make a hedge along +x from the origin, 0.9-2.3 m high, clipped or grown out."""
    height, depth = rng.uniform(0.9, 2.3), rng.uniform(0.5, 1.1)
    if rng.random() < 0.6:
        half = np.array([length / 2, depth / 2, height / 2])
        return Plant(join([]), volumes(half * (1, 0, 1), half, 3.0 * density, is_box=True))
    count = max(int(length / 0.9), 1)
    x = (np.arange(count) + 0.5) * length / count
    low, high = (0.45 * depth, 0.42 * height), (0.75 * depth, 0.6 * height)
    radii = np.insert(rng.uniform(low, high, (count, 2)), 0, 0.75 * length / count, axis=1)
    centres = np.stack([x, rng.normal(0, 0.08, count), np.full(count, 0.45 * height)], axis=1)
    return Plant(join([]), volumes(centres, radii, 2.5 * density))


def plant(site: Site, s: float, d: float, conifers: float = 0.0, room: float = 0.0) -> None:
    """Plant a tree, or a conifer by a chance; where `room` [m] is asked for, if it is free."""
    if room == 0.0 or site.claim(s, d, room):
        make = conifer if site.happens(conifers) else tree
        grow(site, make(site.rng, site.settings.leaf_density), s, d)


def plant_bush(site: Site, s: float, d: float, room: float, scale: float = 1.0) -> None:
    """Plant a bush if `room` [m] about it is free."""
    if site.claim(s, d, room):
        grow(site, bush(site.rng, site.settings.leaf_density, scale), s, d)


def grow(site: Site, what: Plant, s: float, d: float) -> None:
    """Stand a plant on the ground at (s, d), turned at random and rooted a little below."""
    site.put(what, s, d, site.rng.uniform(0, 2 * np.pi), sink=0.05)


def plant_street_trees(site: Site, side: Side) -> None:
    """Plant a row of trees in the verge, with beds between them, or along the kerb."""
    on_verge = side.verge > side.bay
    if not site.happens(site.settings.tree_share * (1.0 if on_verge else 0.6)):
        return
    d = side.sign * ((side.bay + side.verge) / 2 if on_verge else side.bay + 0.55)
    spacing = site.settings.tree_spacing * (1.0 if on_verge else 1.4)
    start = site.block.s0 + site.rng.uniform(1, 5)
    for s in np.arange(start, site.block.s1 - 1, spacing).tolist():
        plant(site, s, d, room=0.6)
        if on_verge and site.happens(0.35):
            plant_bush(site, s + spacing * 0.5, d, room=0.8, scale=0.75)
