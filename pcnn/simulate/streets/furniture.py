"""Street lamps, signs, fences, bins and shelters: standing on z = 0."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.materials import Material
from pcnn.simulate.mesh import Floats, Mesh, join, surface
from pcnn.simulate.primitives import box, boxes, tube
from pcnn.simulate.streets.raw_ids import RawId

# posts reach below their foot, so that no gap shows on sloping ground
_FOOT = -0.3


def lamp(rng: np.random.Generator) -> Mesh:
    """Make a street lamp of 5-8 m whose arm reaches towards +x."""
    height = float(rng.uniform(5.0, 8.0))
    radius = float(rng.uniform(0.07, 0.11))
    reach = float(rng.uniform(0.8, 1.6))
    shaft = tube((0, 0, _FOOT), (0, 0, height), radius, radius * 0.6, sides=8)
    base = tube((0, 0, _FOOT), (0, 0, 1.0), radius * 1.5, sides=8)
    arm = tube((0, 0, height), (reach, 0, height + 0.3), 0.05, sides=5)
    return surface(np.concatenate([shaft, base, arm]), Material.METAL, RawId.POLE)


def bollard(rng: np.random.Generator) -> Mesh:
    """Make a bollard of about 0.9 m."""
    height = float(rng.uniform(0.8, 1.0))
    return surface(tube((0, 0, _FOOT), (0, 0, height), 0.08, sides=8), Material.METAL, RawId.POLE)


def _plate(shape: str, size: float, z: float) -> Floats:
    """A flat plate in the y-z plane, 3 cm thick, centred at height z."""
    if shape == "round":
        return tube((-0.05, 0, z), (-0.08, 0, z), size / 2, sides=14)
    if shape == "triangle":
        # three sides: a tube along x whose first corner the primitive puts anywhere
        return tube((-0.05, 0, z), (-0.08, 0, z), size * 0.58, sides=3)
    width = size * (1.5 if shape == "board" else 1.0)
    return boxes([[-0.065, 0, z]], [0.03, width, size])


def sign(rng: np.random.Generator, low: bool = False) -> Mesh:
    """Make a sign of one or two plates on a post, facing -x; low ones stand on islands."""
    shape = str(rng.choice(["round", "triangle", "square", "board"]))
    size = float(rng.uniform(0.6, 0.9))
    middle = float(rng.uniform(0.9, 1.2) if low else rng.uniform(1.75, 2.25))
    plates = [_plate(shape, size, middle)]
    if not low and rng.random() < 0.6:
        plates.append(_plate("square", 0.5, middle - size * 0.5 - 0.30))
    post = tube((0, 0, _FOOT), (0, 0, middle + size * 0.5), 0.045, sides=6)
    return join(
        [
            surface(post, Material.METAL, RawId.POLE),
            surface(np.concatenate(plates), Material.SIGN_FACE, RawId.TRAFFIC_SIGN),
        ]
    )


def traffic_light(rng: np.random.Generator) -> Mesh:
    """Make a traffic light that faces -x: a post with a case of lamps, one in three on an arm."""
    height = float(rng.uniform(2.3, 2.9))
    parts = [tube((0, 0, _FOOT), (0, 0, height + 0.9), 0.06, sides=7)]
    cases = [box((-0.2, -0.17, height), (0.05, 0.17, height + 0.9))]
    if rng.random() < 0.33:
        reach, top = float(rng.uniform(2.0, 3.5)), height + 2.6
        parts.append(tube((0, 0, height + 0.9), (0, 0, top), 0.05, sides=6))
        parts.append(tube((0, 0, top), (0, reach, top), 0.045, sides=6))
        cases.append(box((-0.2, reach - 0.17, top - 0.9), (0.05, reach + 0.17, top)))
    return join(
        [
            surface(np.concatenate(parts), Material.METAL, RawId.POLE),
            surface(np.concatenate(cases), Material.DARK_PAINT, RawId.TRAFFIC_SIGN),
        ]
    )


def fence(rng: np.random.Generator, length: float) -> Mesh:
    """Make a fence along +x from the origin: pickets, wire mesh, boards, railing or a low wall."""
    kind = str(rng.choice(["pickets", "mesh", "boards", "railing", "wall"]))
    height = float({"pickets": 1.1, "mesh": 1.6, "boards": 1.7, "railing": 1.0, "wall": 0.9}[kind])
    height *= float(rng.uniform(0.85, 1.15))
    middle = length / 2

    def along(spacing: float) -> Floats:
        return np.linspace(0, length, max(round(length / spacing), 1) + 1)

    def rails(*levels: float, thickness: float = 0.05) -> Floats:
        return boxes([[middle, 0, z] for z in levels], [length, thickness, thickness * 1.6])

    def bars(spacing: float, width: float, depth: float) -> Floats:
        return boxes([[x, 0, (height + _FOOT) / 2] for x in along(spacing)],
                     [width, depth, height - _FOOT])  # fmt: skip

    if kind == "wall":
        parts = [surface(box((0, -0.13, _FOOT), (length, 0.13, height)), Material.BRICK),
                 surface(bars(3.0, 0.4, 0.4), Material.BRICK)]  # fmt: skip
    elif kind == "boards":
        parts = [surface(box((0, -0.02, 0.08), (length, 0.02, height)), Material.WOOD),
                 surface(bars(2.0, 0.1, 0.12), Material.WOOD)]  # fmt: skip
    elif kind == "pickets":
        triangles = [bars(0.16, 0.09, 0.03), rails(0.3, height * 0.8), bars(2.2, 0.1, 0.1)]
        parts = [surface(np.concatenate(triangles), Material.WOOD)]
    elif kind == "railing":
        triangles = [bars(0.24, 0.03, 0.03), rails(0.12, height), bars(2.5, 0.07, 0.07)]
        parts = [surface(np.concatenate(triangles), Material.METAL)]
    else:
        wires = rails(*np.arange(0.15, height, 0.16), thickness=0.018)
        triangles = [bars(0.30, 0.02, 0.02), wires, bars(2.5, 0.07, 0.07)]
        parts = [surface(np.concatenate(triangles), Material.METAL)]
    return join(parts).labelled(RawId.FENCE)


def bin_or_box(rng: np.random.Generator) -> Mesh:
    """Make a waste bin or a switch box (raw id other-object, which the benchmark ignores)."""
    size = rng.uniform((0.4, 0.4, 0.8), (0.8, 0.6, 1.3))
    low, high = (-size[0] / 2, -size[1] / 2, -0.1), (size[0] / 2, size[1] / 2, size[2])
    return surface(box(low, high), Material.MID_PAINT, RawId.OTHER_OBJECT)


def shelter() -> Mesh:
    """Make a bus shelter open towards +x (raw id other-structure, which the benchmark ignores)."""
    posts = boxes([[x, y, 1.1] for x in (-0.7, 0.7) for y in (-1.9, 1.9)], [0.08, 0.08, 2.5])
    roof = box((-0.9, -2.0, 2.3), (0.9, 2.0, 2.42))
    bench = box((-0.6, -1.2, 0.42), (-0.2, 1.2, 0.5))
    glass = box((-0.76, -1.9, 0.15), (-0.74, 1.9, 2.1))
    return join(
        [
            surface(np.concatenate([posts, roof, bench]), Material.METAL),
            surface(glass, Material.GLASS),
        ]
    ).labelled(RawId.OTHER_STRUCTURE)
