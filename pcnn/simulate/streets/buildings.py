"""Houses with recessed windows and doors, seen from the street."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.materials import Material
from pcnn.simulate.mesh import Floats, Mesh, join, surface
from pcnn.simulate.primitives import box, boxes, quads
from pcnn.simulate.streets.raw_ids import RawId

_BELOW = -1.5  # [m] walls reach under the ground, wherever the terrain goes


def facade(
    rng: np.random.Generator, width: float, height: float, recess: float
) -> tuple[Floats, Floats]:
    """Make a wall in the plane y = 0 (x 0..width) whose windows lie `recess` metres behind it.

    Returns:
        Triangles of the wall with its window reveals, and triangles of the panes.
    """
    bay = float(rng.uniform(2.4, 3.4))
    bays = max(int(width / bay), 1)
    storey = float(rng.uniform(2.8, 3.3))
    storeys = max(int(height / storey), 1)
    share = float(rng.uniform(0.38, 0.55))
    pitch = width / bays
    left = (np.arange(bays) + 0.5 - share / 2) * pitch
    x = np.sort(np.concatenate([[0.0, width], left, left + share * pitch]))
    sill = np.arange(storeys) * storey + 0.85
    z = np.sort(np.concatenate([[_BELOW, height], sill, np.minimum(sill + 1.35, height - 0.2)]))
    # a lattice: window cells are those of odd column and odd row
    column, row = np.meshgrid(np.arange(len(x) - 1), np.arange(len(z) - 1), indexing="ij")
    x0, x1, z0, z1 = x[column], x[column + 1], z[row], z[row + 1]
    hole = (column % 2 == 1) & (row % 2 == 1)
    # the door: a window cell that reaches down to the ground
    door_column = 2 * int(rng.integers(bays)) + 1
    hole |= (column == door_column) & (row == 0)
    z0 = np.where((column == door_column) & (row == 0), 0.0, z0)

    def upright(ax: Floats, ay: float, bx: Floats, by: float, low: Floats, high: Floats) -> Floats:
        corners = np.stack(
            [np.stack([px, np.full(px.shape, py), pz], -1)
             for px, py, pz in ((ax, ay, low), (bx, by, low), (bx, by, high), (ax, ay, high))],
            axis=-2,
        )  # fmt: skip
        return corners.reshape(-1, 4, 3)

    def level(height_: Floats, ax: Floats, bx: Floats) -> Floats:
        corners = np.stack(
            [np.stack([px, np.full(px.shape, py), height_], -1)
             for px, py in ((ax, 0.0), (bx, 0.0), (bx, recess), (ax, recess))],
            axis=-2,
        )  # fmt: skip
        return corners.reshape(-1, 4, 3)

    wall = [upright(x0[~hole], 0.0, x1[~hole], 0.0, z0[~hole], z1[~hole])]
    wx0, wx1, wz0, wz1 = x0[hole], x1[hole], z0[hole], z1[hole]
    wall += [upright(edge, 0.0, edge, recess, wz0, wz1) for edge in (wx0, wx1)]
    wall += [level(wz0, wx0, wx1), level(wz1, wx0, wx1)]
    panes = upright(wx0, recess, wx1, recess, wz0, wz1)
    return quads(np.concatenate(wall)), quads(panes)


def building(rng: np.random.Generator, width: float, depth: float, height: float) -> Mesh:
    """Make a house on x 0..width, y 0..depth; the street lies on the side of -y."""
    material = Material(int(rng.choice((Material.BRICK, Material.PLASTER, Material.CONCRETE))))
    recess = float(rng.uniform(0.10, 0.25))
    front, panes = facade(rng, width, height, recess)
    back = front * (-1.0, -1.0, 1.0) + (width, depth, 0.0)
    corners = np.array(
        [
            [[0, 0, _BELOW], [0, depth, _BELOW], [0, depth, height], [0, 0, height]],
            [
                [width, 0, _BELOW],
                [width, depth, _BELOW],
                [width, depth, height],
                [width, 0, height],
            ],
        ],
        np.float64,
    )
    walls = [front, back, quads(corners)]
    eave = 0.35
    if rng.random() < 0.6:  # a gable roof whose ridge runs along the street
        ridge = height + depth * float(rng.uniform(0.3, 0.5))
        x0, x1 = -eave, width + eave
        z, middle = height - 0.1, depth / 2
        slopes = np.array(
            [
                [[x0, y, z], [x1, y, z], [x1, middle, ridge], [x0, middle, ridge]]
                for y in (-eave, depth + eave)
            ]
        )
        gables = np.array(
            [[[x, 0, height], [x, depth, height], [x, depth / 2, ridge]] for x in (0.0, width)]
        )
        walls += [quads(slopes), gables]
    else:
        walls.append(box((-0.1, -0.1, height - 0.3), (width + 0.1, depth + 0.1, height + 0.2)))
    trim = []
    if rng.random() < 0.6:  # a plinth
        trim.append(box((0, -0.08, _BELOW), (width, 0.0, 0.5)))
    if rng.random() < 0.5:  # steps and a porch
        x = float(rng.uniform(1.0, max(width - 2.0, 1.1)))
        trim.append(boxes([[x, -0.5, 0.0], [x, -0.35, 0.25]], [[1.6, 1.0, 0.5], [1.6, 0.7, 0.5]]))
        trim.append(box((x - 0.9, -1.1, 2.4), (x + 0.9, 0.0, 2.55)))
    if rng.random() < 0.4:  # balconies
        count = max(int(width / 6), 1)
        middles = (np.arange(count) + 0.5) * width / count
        trim.append(boxes([[m, -0.6, 3.4] for m in middles], [2.4, 1.2, 0.9]))
    parts = [surface(np.concatenate(walls), material), surface(panes, Material.WINDOW)]
    if trim:
        parts.append(surface(np.concatenate(trim), Material.CONCRETE))
    return join(parts).labelled(RawId.BUILDING)
