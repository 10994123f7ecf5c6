"""Plots behind the sidewalk: houses, fences, hedges, gardens, and the backdrop."""

from __future__ import annotations

import math

import numpy as np

from pcnn.simulate.mesh import Floats, Mesh, join, surface
from pcnn.simulate.shapes import block, box, quads
from pcnn.simulate.streets.layout import Plot, Side
from pcnn.simulate.streets.materials import MATERIALS, RawId
from pcnn.simulate.streets.plants import Plant, hedge
from pcnn.simulate.streets.site import OBJECTS, Site

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
    """Make a wall in the plane y = 0 (x 0..width) whose windows lie `recess` metres behind it."""
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


def build_plots(site: Site) -> None:
    for plot in site.block.plots:
        if plot.use == "park":
            _park(site, plot)
        elif plot.use == "carpark":
            _border(site, plot, plot.side.edge + plot.front + 6.3, kind="fence")
        else:
            _house(site, plot)
    for side in site.block.sides:
        _backdrop(site, side)


def fence(rng: np.random.Generator, length: float) -> Mesh:
    """Make a fence along +x from the origin: pickets, wire, boards, a railing or a low wall."""
    return OBJECTS.make(rng, MATERIALS.get, "fence", length=length).mesh


def house(site: Site, width: float, depth: float) -> Mesh:
    tall = np.clip(site.rng.normal(site.settings.building_height, 1.5), 3.5, 16.0)
    return building(site.rng, width, depth, float(tall))


def _house(site: Site, plot: Plot) -> None:
    rng, side = site.rng, plot.side
    detached = plot.use == "house" and site.happens(0.6)
    gaps = rng.uniform(0.8, 3.0, 2) if detached else np.zeros(2)
    if plot.driveway is not None:  # the driveway ends beside the house
        end = int(plot.driveway - plot.s0 > 1.0)
        gaps[end] = max(gaps[end], 3.8)
    start, stop = plot.s0 + float(gaps[0]), plot.s1 - float(gaps[1])
    distance = side.edge + plot.front
    mesh = house(site, stop - start, rng.uniform(8.0, 12.0))
    site.put_along(mesh, side, start, stop, distance)
    if plot.use == "house":
        if plot.front > 1.2:
            _border(site, plot, side.edge + 0.2)
        _garden(site, plot, side.edge + 0.9, distance - 0.7)
        for a, b in ((plot.s0, start), (stop, plot.s1)):
            if b - a > 1.0 and plot.driveway is None and site.happens(0.6):
                site.put_along(fence(rng, b - a), side, a, b, distance + 1.0)
    elif site.happens(0.5):
        s, d = rng.uniform(plot.s0 + 1, plot.s1 - 1), side.sign * (side.edge + 0.6)
        if site.claim(s, d, 0.5):
            site.put("bollard", s, d)


def _border(site: Site, plot: Plot, distance: float, kind: str | None = None) -> None:
    rng, settings = site.rng, site.settings
    chance = rng.random()
    if kind is None:
        if chance > settings.fence_share + settings.hedge_share:
            return
        kind = "fence" if chance < settings.fence_share else "hedge"
    gate = rng.uniform(plot.s0 + 3.0, plot.s1 - 4.5)
    openings = [(gate, gate + 1.3)]
    if plot.driveway is not None:
        openings.append((plot.driveway - 0.1, plot.driveway + 3.1))
    at = plot.s0 + 0.15
    for a, b in [*sorted(openings), (plot.s1 - 0.15, plot.s1)]:
        if a - at > 0.6:
            state = rng.bit_generator.state
            # pieces of at most 5 m follow the ground
            for start in np.linspace(at, a, math.ceil((a - at) / 5.0), endpoint=False).tolist():
                rng.bit_generator.state = state  # the same style and height all along
                step = (a - at) / math.ceil((a - at) / 5.0)
                piece: Mesh | Plant = (
                    fence(rng, step) if kind == "fence" else hedge(rng, step, settings.leaf_density)
                )
                site.put_along(piece, plot.side, start, start + step, distance)
        at = max(at, b)


def _garden(site: Site, plot: Plot, near: float, far: float) -> None:
    rng, sign = site.rng, plot.side.sign
    if far - near < 0.8:
        return
    for _ in range(int(rng.poisson(site.settings.bush_count / 2))):
        s, d = rng.uniform(plot.s0 + 1, plot.s1 - 1), sign * rng.uniform(near, far)
        if plot.driveway is None or not -1 < s - plot.driveway < 4:
            site.plant_bush(s, d, room=0.7)
    if far - near > 2.0 and plot.driveway is None and site.happens(0.5):
        s = rng.uniform(plot.s0 + 2, plot.s1 - 2)
        site.plant(s, sign * (near + far) / 2, conifers=0.4, room=1.0)


def _park(site: Site, plot: Plot) -> None:
    rng, side = site.rng, plot.side
    _border(site, plot, side.edge + 0.2)
    low, high = plot.s0 + 1, plot.s1 - 1
    if site.happens(site.settings.thicket_share):  # along the street
        for s in np.arange(low, high, rng.uniform(1.0, 1.8)).tolist():
            site.plant_bush(s, side.sign * (side.edge + rng.uniform(1.4, 3.5)), room=0.4)
    for _ in range(int(rng.integers(3, 7))):
        d = side.sign * (side.edge + rng.uniform(1.5, 16))
        site.plant(rng.uniform(low, high), d, conifers=0.3, room=1.2)
    for _ in range(int(rng.poisson(site.settings.bush_count)) + 1):
        d = side.sign * (side.edge + rng.uniform(1.2, 14))
        site.plant_bush(rng.uniform(low, high), d, room=0.8)


def _backdrop(site: Site, side: Side) -> None:
    rng, block = site.rng, site.block
    arm = block.arm(side)

    def free(s: float, width: float = 2.0) -> bool:
        return arm is None or abs(s - arm.s) > arm.reach + width

    for near, far, low, high in ((21.0, 35.0, 5, 12), (52.0, 62.0, 4, 10)):
        for _ in range(int(rng.integers(low, high))):
            s = rng.uniform(block.s0 + 2, block.s1 - 2)
            if free(s):
                d = side.sign * (side.edge + rng.uniform(near, far))
                site.plant(s, d, conifers=0.4)
    if arm is None and site.happens(0.6):
        start = block.s0 + rng.uniform(0, 10)
        green = hedge(rng, 20.0, site.settings.leaf_density)
        site.put_along(green, side, start, start + 20.0, side.edge + 22.5)
    start = block.s0 + rng.uniform(0.3, 3.0)
    while start < block.s1 - 6.0:
        width = min(rng.uniform(8.0, 16.0), block.s1 - 0.3 - start)
        if free(start + width / 2, width / 2) and not site.happens(0.15):
            mesh = building(rng, width, rng.uniform(8, 11), rng.uniform(5, 14))
            site.put_along(mesh, side, start, start + width, side.edge + 38.0)
        start += width + rng.uniform(0.0, 4.0)
