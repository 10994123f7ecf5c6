"""People on foot and in the saddle, facing +x."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.materials import Material
from pcnn.simulate.mesh import Mesh, join, surface
from pcnn.simulate.primitives import box, ellipsoid, tube

_CLOTHES = (Material.DARK_CLOTH, Material.LIGHT_CLOTH, Material.DARK_CLOTH)


def _cloth(rng: np.random.Generator) -> Material:
    return Material(int(rng.choice(_CLOTHES)))


def person(rng: np.random.Generator, walking: bool) -> Mesh:
    """Make a person of 1.5-1.9 m, in mid-stride or standing."""
    height = float(rng.uniform(1.5, 1.9))
    stride = float(rng.uniform(0.18, 0.34)) if walking else float(rng.uniform(0.0, 0.06))
    swing = stride * 0.9
    # drawn for a height of 1.75 m, then scaled
    legs = [
        tube((sign * stride, side * 0.11, 0.0), (0, side * 0.09, 0.86), 0.065, 0.10)
        for sign, side in ((1, 1), (-1, -1))
    ]
    feet = [
        box(
            (sign * stride - 0.08, side * 0.11 - 0.05, 0),
            (sign * stride + 0.2, side * 0.11 + 0.05, 0.09),
        )
        for sign, side in ((1, 1), (-1, -1))
    ]
    arms = [
        tube((0, side * 0.23, 1.42), (-sign * swing, side * 0.29, 0.82), 0.055, 0.045)
        for sign, side in ((1, 1), (-1, -1))
    ]
    parts = [
        surface(np.concatenate([*legs, *feet]), _cloth(rng)),
        surface(ellipsoid((0, 0, 1.14), (0.15, 0.22, 0.38)), _cloth(rng)),
        surface(np.concatenate(arms), _cloth(rng)),
        surface(ellipsoid((0.02, 0, 1.62), (0.10, 0.09, 0.13)), Material.SKIN),
    ]
    if rng.random() < 0.3:
        parts.append(surface(box((-0.32, -0.16, 1.0), (-0.1, 0.16, 1.45)), _cloth(rng)))
    return join(parts).scaled(height / 1.75)


def rider(
    rng: np.random.Generator,
    seat: tuple[float, float],
    hands: tuple[float, float],
    feet: float,
    helmet: bool = False,
) -> Mesh:
    """Make a person in a saddle.

    Args:
        rng: draws clothes and posture.
        seat: hip position (x, z) [m].
        hands: handlebar position (x, z) [m].
        feet: mean height of the feet [m].
        helmet: a larger, painted head.
    """
    hip_x, hip_z = seat
    lean = float(rng.uniform(0.10, 0.28))
    shoulder = (hip_x + lean, 0.0, hip_z + 0.50)
    legs = []
    lift = float(rng.uniform(-0.12, 0.12))
    for side in (-1.0, 1.0):
        knee = (hip_x + 0.38, side * 0.17, hip_z - 0.18 + side * lift)
        foot = (hip_x + 0.18, side * 0.16, feet + side * lift)
        legs.append(tube((hip_x, side * 0.09, hip_z), knee, 0.09, 0.075))
        legs.append(tube(knee, foot, 0.07, 0.06))
    arms = [
        tube(
            (shoulder[0], side * 0.2, shoulder[2] - 0.05), (hands[0], side * 0.28, hands[1]), 0.055
        )
        for side in (-1.0, 1.0)
    ]
    head_material = Material.MID_PAINT if helmet else Material.SKIN
    radius = 0.15 if helmet else 0.11
    torso = tube((hip_x, 0, hip_z - 0.05), shoulder, 0.17, 0.19, sides=8)
    return join(
        [
            surface(np.concatenate(legs), _cloth(rng)),
            surface(np.concatenate([torso, *arms]), _cloth(rng)),
            surface(
                ellipsoid(
                    (shoulder[0] + 0.05, 0, shoulder[2] + 0.18), (radius, radius, radius * 1.2)
                ),
                head_material,
            ),
        ]
    )
