"""Plants: wood as triangles, leaves as volumes that rays enter, pass in part, and return from.

A volume holds a field of small cells fixed in the world, of which a share holds a leaf. A ray that
crosses a volume steps from cell to cell and returns from the first that holds one. So scans of one
street from several places see the same leaves, and sight fades with depth as it does in a crown.
`density` is the number of leaves met on a metre of the way through a crown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcnn.simulate.mesh import Floats, Hits, Mesh, RayCaster, cell_noise, join, rotation_z, surface
from pcnn.simulate.shapes import box, cushion, tube
from pcnn.simulate.streets.drive import Road
from pcnn.simulate.streets.materials import MATERIALS, RawId

CELL = 0.10  # [m] edge of a cell, about a leaf or a small twig
_CLUMP = 0.45  # [m] edge of the cells that gather leaves into twigs and leave gaps between them
_CROSSINGS = 24  # faces of hulls that a ray is followed through, at most


@dataclass(frozen=True, eq=False)
class Foliage:
    """Ellipsoids and boxes that hold leaves, in street or world coordinates [m]."""

    centres: Floats  # [V, 3]
    radii: Floats  # [V, 3] half extents along the volume's own axes
    yaw: Floats  # [V] [rad] of the axes about z
    density: Floats  # [V] leaves met on a metre of the way through the densest parts
    is_box: NDArray[np.bool_]  # [V]

    def __len__(self) -> int:
        return len(self.centres)

    def moved(self, x: float, y: float, z: float = 0.0, yaw: float = 0.0) -> Foliage:
        """Return the volumes turned by `yaw` [rad] about z, then shifted by (x, y, z) [m]."""
        centres = np.einsum("vc,wc->vw", self.centres, rotation_z(yaw)) + np.array([x, y, z])
        return replace(self, centres=centres, yaw=self.yaw + yaw)

    def bent(self, road: Road) -> Foliage:
        yaw = self.yaw + road.heading(self.centres[:, 0])
        return replace(self, centres=road.bend(self.centres), yaw=yaw)


def volumes(
    centres: ArrayLike, radii: ArrayLike, density: ArrayLike, is_box: bool = False
) -> Foliage:
    """Make ellipsoids or boxes from centres and half axes, [3] or [V, 3], and densities."""
    c = np.atleast_2d(np.asarray(centres, np.float64))
    r, leaves = np.broadcast_to(radii, c.shape), np.broadcast_to(density, len(c))
    return Foliage(c, r, np.zeros(len(c)), leaves, np.full(len(c), is_box))


def join_foliage(parts: Iterable[Foliage]) -> Foliage:
    whole = [volumes(np.zeros((0, 3)), 0.0, 0.0), *parts]
    return Foliage(
        *(np.concatenate([getattr(part, f.name) for part in whole]) for f in fields(Foliage))
    )


@dataclass(frozen=True, eq=False)
class Plant:
    """Wood and leaves of one plant, standing on z = 0."""

    wood: Mesh
    leaves: Foliage


_UNIT_BALL = cushion((0, 0, 0), (2, 2, 2), edge=1.0, sides=8)  # [F, 3, 3]
_BALL_SLACK = 1.18  # its faces lie inside the ball, at 0.85 and more; so much larger, outside
_UNIT_BOX = box((0, 0, 0), (2, 2, 2))


class FoliageCaster:
    """Finds the leaves that rays meet first; hulls are found by Embree, cells by stepping."""

    def __init__(self, foliage: Foliage, origin: Floats) -> None:
        self._foliage = foliage
        self._origin = origin
        c, s = np.cos(foliage.yaw), np.sin(foliage.yaw)
        zero, one = np.zeros_like(c), np.ones_like(c)
        # [V, 3, 3] world to own axes
        self._turn = np.stack([c, s, zero, -s, c, zero, zero, zero, one], -1).reshape(-1, 3, 3)
        parts, owners = [], []
        for unit, chosen, slack in (
            (_UNIT_BALL, np.flatnonzero(~foliage.is_box), _BALL_SLACK),
            (_UNIT_BOX, np.flatnonzero(foliage.is_box), 1.0),
        ):
            own = unit[None] * (slack * foliage.radii[chosen, None, None, :])  # [v, F, 3, 3]
            world = np.einsum("vfkc,vcw->vfkw", own, self._turn[chosen])
            world += (foliage.centres[chosen] - origin)[:, None, None, :]
            parts.append(world.reshape(-1, 3, 3))
            owners.append(np.repeat(chosen, len(unit)))
        self._owner = np.concatenate(owners)  # [F] volume of a face
        self._hulls = RayCaster(surface(np.concatenate(parts), 0))

    def cast(self, origins: Floats, directions: Floats, limits: Floats) -> Hits:
        rays = len(directions)
        best = np.full(rays, np.inf)
        active, start = np.arange(rays if len(self._foliage) else 0), np.zeros(rays)
        for _ in range(_CROSSINGS):
            if not len(active):
                break
            there = origins[active] - self._origin + directions[active] * start[active, None]
            ahead, face = self._hulls.first_faces(there, directions[active])
            entry = start[active] + ahead
            going = (face >= 0) & (entry < np.minimum(limits, best)[active])
            active, face, entry = active[going], face[going], entry[going]
            leaf = self._first_leaf(origins[active], directions[active], self._owner[face], entry)
            np.minimum.at(best, active, leaf)
            start[active] = entry + 1e-3
        seen = best < limits
        cells = np.floor((origins + directions * np.where(seen, best, 0.0)[:, None]) / CELL)
        return Hits(
            distance=np.where(seen, best, np.inf),
            # leaves hang at any attitude; one that was hit is seldom seen edge-on
            cosine=0.25 + 0.75 * cell_noise(cells, 3),
            labels=np.where(seen, RawId.VEGETATION, 0).astype(np.uint16),
            materials=np.full(rays, MATERIALS["leaf"], np.uint8),
            instances=np.zeros(rays, np.uint16),
        )

    def _first_leaf(
        self, origins: Floats, directions: Floats, volume: NDArray[np.int64], entry: Floats
    ) -> Floats:
        """Step through one volume a ray; return the distance of the first leaf, inf without."""
        near, far = self._interval(origins, directions, volume)
        # a volume is met again at its far side, when all of it has been walked
        to_walk = (far > near) & (entry < 0.5 * (near + far))
        result = np.full(len(origins), np.inf)
        live, at = np.flatnonzero(to_walk), near.copy()
        step = 0.8 * CELL
        while len(live):
            place = origins[live] + directions[live] * at[live, None]
            cell = np.floor(place / CELL)
            twig = cell_noise(np.floor(place / _CLUMP), 1)
            # a third of the twigs hold no leaves, the others up to twice the mean
            share = self._foliage.density[volume[live]] * step * np.clip(3.0 * twig - 1.0, 0.0, 2.0)
            leaf = cell_noise(cell, 2) < share
            hit = live[leaf]
            # somewhere inside the step, the same place for every ray of this cell
            result[hit] = at[hit] + step * (cell_noise(cell[leaf], 4) - 0.5)
            at[live] += step
            live = live[~leaf & (at[live] < far[live])]
        return result

    def _interval(
        self, origins: Floats, directions: Floats, volume: NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """Return where each ray enters and leaves its volume [m]; far <= near if it misses."""
        foliage = self._foliage
        turn, radii = self._turn[volume], foliage.radii[volume]
        o = np.einsum("rwc,rc->rw", turn, origins - foliage.centres[volume]) / radii
        d = np.einsum("rwc,rc->rw", turn, directions) / radii
        # ball: |o + t d|^2 = 1
        a, b, c = (d * d).sum(1), (o * d).sum(1), (o * o).sum(1) - 1.0
        root = b * b - a * c
        miss = root <= 0
        reach = np.sqrt(np.where(miss, 0.0, root))
        near, far = (-b - reach) / a, (-b + reach) / a
        # box: slabs; a tiny component stands for one that is zero
        slope = np.where(np.abs(d) < 1e-12, 1e-12, d)
        ends = np.stack([(-1.0 - o) / slope, (1.0 - o) / slope])
        is_box = foliage.is_box[volume]
        near = np.where(is_box, ends.min(0).max(1), near)
        far = np.where(is_box, ends.max(0).min(1), np.where(miss, near, far))
        return np.maximum(near, 0.0), far


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
