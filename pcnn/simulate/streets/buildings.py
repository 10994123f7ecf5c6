"""Houses with recessed windows and doors, seen from the street."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.mesh import Floats, Mesh, join, surface
from pcnn.simulate.shapes import block, box, quads
from pcnn.simulate.streets.materials import MATERIALS
from pcnn.simulate.streets.raw_ids import RawId

_BELOW = -1.5  # [m] walls reach under the ground, as low as the terrain may lie


def _faces(x0: Floats, x1: Floats, y0: float, y1: float, low: Floats, high: Floats) -> Floats:
    """Make faces from (x0, y0) to (x1, y1); upright ones, or level ones where low is high."""
    level = np.array_equal(low, high)
    near, far = (y0, y1) if level else (y1, y0)
    corners = [(x0, y0, low), (x1, near, low), (x1, y1, high), (x0, far, high)]
    return np.stack([np.stack([x, np.full(x.shape, y), z], -1) for x, y, z in corners], -2)


def facade(
    rng: np.random.Generator, width: float, height: float, recess: float
) -> tuple[Floats, Floats]:
    """Make a wall in the plane y = 0 (x 0..width) whose windows lie `recess` metres behind it.

    Returns:
        Triangles of the wall with its window reveals, and triangles of the panes.
    """
    bays = max(int(width / rng.uniform(2.4, 3.4)), 1)
    storey, share = rng.uniform(2.8, 3.3), rng.uniform(0.38, 0.55)
    pitch = width / bays
    left = (np.arange(bays) + 0.5 - share / 2) * pitch
    x = np.sort(np.concatenate([[0.0, width], left, left + share * pitch]))
    sill = np.arange(max(int(height / storey), 1)) * storey + 0.85
    z = np.sort(np.concatenate([[_BELOW, height], sill, np.minimum(sill + 1.35, height - 0.2)]))
    # a lattice: window cells are those of odd column and odd row
    column, row = np.meshgrid(np.arange(len(x) - 1), np.arange(len(z) - 1), indexing="ij")
    hole = (column % 2 == 1) & (row % 2 == 1)
    # the door: a window cell that reaches down to the ground
    door = (column == 2 * int(rng.integers(bays)) + 1) & (row == 0)
    hole |= door
    x0, x1, z0, z1 = x[column], x[column + 1], np.where(door, 0.0, z[row]), z[row + 1]
    wall = [_faces(x0[~hole], x1[~hole], 0.0, 0.0, z0[~hole], z1[~hole])]
    x0, x1, z0, z1 = x0[hole], x1[hole], z0[hole], z1[hole]
    wall += [_faces(edge, edge, 0.0, recess, z0, z1) for edge in (x0, x1)]
    wall += [_faces(x0, x1, 0.0, recess, level, level) for level in (z0, z1)]
    return quads(np.concatenate(wall)), quads(_faces(x0, x1, recess, recess, z0, z1))


def building(rng: np.random.Generator, width: float, depth: float, height: float) -> Mesh:
    """Make a house on x 0..width, y 0..depth; the street lies on the side of -y."""
    material = MATERIALS[str(rng.choice(["brick", "plaster", "concrete"]))]
    front, panes = facade(rng, width, height, rng.uniform(0.10, 0.25))
    back = front * (-1.0, -1.0, 1.0) + (width, depth, 0.0)
    low, high = _BELOW, height
    ends = [[(x, 0, low), (x, depth, low), (x, depth, high), (x, 0, high)] for x in (0.0, width)]
    walls = [front, back, quads(ends)]
    if rng.random() < 0.6:  # a gable roof whose ridge runs along the street
        ridge, eave = height + depth * rng.uniform(0.3, 0.5), 0.35
        x0, x1, z, middle = -eave, width + eave, height - 0.1, depth / 2
        slopes = [
            [(x0, y, z), (x1, y, z), (x1, middle, ridge), (x0, middle, ridge)]
            for y in (-eave, depth + eave)
        ]
        gables = [[(x, 0, height), (x, depth, height), (x, middle, ridge)] for x in (0.0, width)]
        walls += [quads(slopes), np.array(gables, np.float64)]
    else:
        walls.append(block((-0.1, -0.1, height - 0.3), (width + 0.1, depth + 0.1, height + 0.2)))
    trim = [np.zeros((0, 3, 3))]
    if rng.random() < 0.6:  # a plinth
        trim.append(block((0, -0.08, _BELOW), (width, 0.0, 0.5)))
    if rng.random() < 0.5:  # steps and a porch
        x = rng.uniform(1.0, max(width - 2.0, 1.1))
        trim.append(box([[x, -0.5, 0.0], [x, -0.35, 0.25]], [[1.6, 1.0, 0.5], [1.6, 0.7, 0.5]]))
        trim.append(block((x - 0.9, -1.1, 2.4), (x + 0.9, 0.0, 2.55)))
    if rng.random() < 0.4:  # balconies
        count = max(int(width / 6), 1)
        middles = (np.arange(count) + 0.5) * width / count
        trim.append(box([[m, -0.6, 3.4] for m in middles], [2.4, 1.2, 0.9]))
    parts = [
        surface(np.concatenate(walls), material),
        surface(panes, MATERIALS["window"]),
        surface(np.concatenate(trim), MATERIALS["concrete"]),
    ]
    return join(parts).labelled(RawId.BUILDING)
