"""Foliage: volumes of loose leaves that rays enter, pass in part, and return from.

A volume holds a field of small cells fixed in the world, of which a share holds a leaf. A ray that
crosses a volume steps from cell to cell and returns from the first that holds one. So scans of one
street from several places see the same leaves, and sight fades with depth as it does in a crown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcnn.simulate.hashing import cell_noise
from pcnn.simulate.mesh import Floats, Mesh, rotation_z, surface
from pcnn.simulate.raycast import Hits, RayCaster
from pcnn.simulate.shapes import box, cushion
from pcnn.simulate.streets.materials import MATERIALS
from pcnn.simulate.streets.raw_ids import RawId
from pcnn.simulate.streets.road import Road

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
        """Return the number of volumes."""
        return len(self.centres)

    def moved(self, x: float, y: float, z: float = 0.0, yaw: float = 0.0) -> Foliage:
        """Return the volumes turned by `yaw` [rad] about z, then shifted by (x, y, z) [m]."""
        centres = np.einsum("vc,wc->vw", self.centres, rotation_z(yaw)) + np.array([x, y, z])
        return replace(self, centres=centres, yaw=self.yaw + yaw)

    def bent(self, road: Road) -> Foliage:
        """Map volumes from street to world coordinates."""
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
    """Concatenate volumes."""
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
        """Build the hulls."""
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
        """Follow rays through the volumes."""
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
