"""Bicycles and motorcycles, alone or with a rider: standing on z = 0, facing +x."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.materials import Material
from pcnn.simulate.mesh import Mesh, join, surface
from pcnn.simulate.primitives import box, ellipsoid, extrusion, hoop, tube
from pcnn.simulate.streets.people import rider


def bicycle(rng: np.random.Generator) -> Mesh:
    """Make a bicycle: two thin wheels, a diamond of tubes, handlebar and saddle."""
    size = float(rng.uniform(0.92, 1.05))
    radius, base = 0.34, 0.53
    crank, saddle, head = (-0.05, 0.0, 0.30), (-0.22, 0.0, 0.92), (0.40, 0.0, 0.90)
    rear, front = (-base, 0.0, radius), (base, 0.0, radius)
    bars = [
        (crank, saddle), (crank, head), ((-0.18, 0.0, 0.80), head), (rear, crank),
        (rear, (-0.18, 0.0, 0.80)), (front, (0.38, 0.0, 1.02)),
        ((0.36, -0.28, 1.04), (0.36, 0.28, 1.04)),
    ]  # fmt: skip
    # a beam is some 3 cm wide where it lands: bars a little too thick catch what real ones do
    frame = [tube(a, b, 0.028, sides=5) for a, b in bars]
    spokes = [
        tube((x - 0.3 * np.cos(a), 0, radius - 0.3 * np.sin(a)),
             (x + 0.3 * np.cos(a), 0, radius + 0.3 * np.sin(a)), 0.008, sides=3)
        for x in (-base, base)
        for a in (0.3, 1.35, 2.4)
    ]  # fmt: skip
    tyres = [hoop(rear, radius, 0.05), hoop(front, radius, 0.05)]
    parts = [
        surface(np.concatenate([*frame, *spokes]), Material.METAL),
        surface(np.concatenate(tyres), Material.RUBBER),
        surface(ellipsoid((-0.24, 0, 0.95), (0.14, 0.08, 0.05), 6), Material.RUBBER),
    ]
    if rng.random() < 0.4:
        parts.append(surface(box((0.45, -0.17, 0.75), (0.75, 0.17, 1.0)), Material.MID_PAINT))
    return join(parts).scaled(size)


def motorcycle(rng: np.random.Generator) -> Mesh:
    """Make a motorcycle: fat solid wheels, engine, tank, seat, fork, some with screen or case."""
    size = float(rng.uniform(0.95, 1.08))
    paint = Material(int(rng.choice((Material.DARK_PAINT, Material.MID_PAINT))))
    wheels = [tube((x, -0.08, 0.31), (x, 0.08, 0.31), 0.31, sides=12) for x in (-0.70, 0.74)]
    seat = [(-0.85, 0.82), (-0.80, 0.95), (-0.1, 0.80), (-0.1, 0.66), (-0.6, 0.70)]
    steel = [
        box((-0.30, -0.22, 0.25), (0.32, 0.22, 0.66)),
        tube((0.74, 0.10, 0.31), (0.50, 0.10, 1.0), 0.04, sides=5),
        tube((0.74, -0.10, 0.31), (0.50, -0.10, 1.0), 0.04, sides=5),
        tube((0.46, -0.38, 1.06), (0.46, 0.38, 1.06), 0.03, sides=5),
        tube((-0.95, -0.22, 0.42), (0.1, -0.22, 0.30), 0.07, sides=6),
    ]
    parts = [
        surface(np.concatenate(wheels), Material.RUBBER),
        surface(np.concatenate(steel), Material.METAL),
        surface(ellipsoid((0.18, 0, 0.84), (0.32, 0.20, 0.17)), paint),
        surface(extrusion(seat, -0.15, 0.15), Material.DARK_CLOTH),
        surface(ellipsoid((0.58, 0, 0.92), (0.12, 0.14, 0.14)), paint),
    ]
    if rng.random() < 0.5:
        screen = [(0.60, 0.95), (0.42, 1.30), (0.45, 1.30), (0.66, 0.95)]
        parts.append(surface(extrusion(screen, -0.22, 0.22), paint))
    if rng.random() < 0.5:
        parts.append(surface(box((-1.05, -0.22, 0.92), (-0.62, 0.22, 1.24)), paint))
    return join(parts).scaled(size)


def bicyclist(rng: np.random.Generator) -> Mesh:
    """Make a rider on a bicycle, leaning forward with one leg down and one up."""
    return join([bicycle(rng), rider(rng, seat=(-0.22, 0.97), hands=(0.33, 1.06), feet=0.30)])


def motorcyclist(rng: np.random.Generator) -> Mesh:
    """Make a rider on a motorcycle, knees bent round the tank, with a helmet."""
    return join(
        [
            motorcycle(rng),
            rider(rng, seat=(-0.32, 0.86), hands=(0.42, 1.06), feet=0.34, helmet=True),
        ]
    )
