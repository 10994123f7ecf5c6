"""Cars, trucks, buses and caravans: a mesh each, standing on z = 0 and facing +x."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.materials import Material
from pcnn.simulate.mesh import Floats, Mesh, join, surface
from pcnn.simulate.primitives import box, boxes, extrusion, frustum, tube

_PAINTS = (Material.DARK_PAINT, Material.MID_PAINT, Material.LIGHT_PAINT)

# outline of the lower body as shares of length (x) and of belt height (z): bonnet, belt line, boot
_LOWER = np.array(
    [
        [-0.50, 0.30], [-0.50, 0.85], [-0.46, 1.00], [0.18, 1.00],
        [0.40, 0.88], [0.49, 0.72], [0.50, 0.30], [0.0, 0.22],
    ]
)  # fmt: skip
# the greenhouse: rear foot, front foot, rear and front end of the roof, as shares of the length
_GREENHOUSES = {
    "hatchback": (-0.49, 0.22, -0.40, 0.06),
    "estate": (-0.49, 0.20, -0.44, 0.05),
    "saloon": (-0.36, 0.20, -0.22, 0.05),
    "van": (-0.50, 0.36, -0.48, 0.20),
}


def _wheels(axles: list[float], half_track: float, radius: float, width: float) -> Mesh:
    return join(
        surface(
            tube((x, side * (half_track - width), radius), (x, side * half_track, radius), radius,
                 sides=10),
            Material.RUBBER,
        )
        for x in axles
        for side in (-1.0, 1.0)
    )  # fmt: skip


def _glazed(low: tuple[float, ...], high: tuple[float, ...], z: tuple[float, float]) -> Mesh:
    """A cabin of glass with pillars and a roof plate that stand out a little."""
    glass = surface(frustum(low, high, z), Material.GLASS)
    pillars = []
    for end in (0, 1):
        for side in (2, 3):
            foot = (low[end], low[side], z[0])
            head = (high[end], high[side], z[1])
            pillars.append(tube(foot, head, 0.05, sides=4))
    middle = (low[0] + low[1]) / 2
    for side in (2, 3):
        pillars.append(tube((middle, low[side], z[0]), (middle, high[side], z[1]), 0.05, sides=4))
    roof = box(
        (high[0] - 0.04, high[2] - 0.03, z[1] - 0.06), (high[1] + 0.04, high[3] + 0.03, z[1])
    )
    return join([glass, surface(np.concatenate([*pillars, roof]), Material.MID_PAINT)])


def car(rng: np.random.Generator) -> Mesh:
    """Make a car of 3.6-4.9 m: hatchback, estate, saloon or van."""
    shape = str(rng.choice(list(_GREENHOUSES), p=[0.4, 0.25, 0.2, 0.15]))
    length = float(rng.uniform(3.6, 4.3) if shape == "hatchback" else rng.uniform(4.2, 4.9))
    half = float(rng.uniform(0.83, 0.94))
    height = float(rng.uniform(1.75, 2.0) if shape == "van" else rng.uniform(1.40, 1.62))
    belt = height * 0.60
    paint = Material(int(rng.choice(_PAINTS)))
    body = surface(extrusion(_LOWER * (length, belt), -half, half), paint)
    rear, front, roof_rear, roof_front = (length * x for x in _GREENHOUSES[shape])
    cabin = _glazed(
        (rear, front, -half + 0.05, half - 0.05),
        (roof_rear, roof_front, -half + 0.18, half - 0.18),
        (belt - 0.01, height),
    )
    mirrors = surface(
        boxes([[0.14 * length, side * (half + 0.09), belt + 0.08] for side in (-1, 1)],
              [0.12, 0.18, 0.13]),
        paint,
    )  # fmt: skip
    wheels = _wheels([-0.31 * length, 0.31 * length], half + 0.02, 0.31, 0.20)
    return join([body, cabin, mirrors, wheels])


def truck(rng: np.random.Generator) -> Mesh:
    """Make a lorry of 6.5-8.5 m: a tall cab, a gap, a cargo box or a tipper on a bare chassis."""
    length = float(rng.uniform(6.5, 8.5))
    half = float(rng.uniform(1.12, 1.22))
    height = float(rng.uniform(2.9, 3.5))
    front, rear, cab = length / 2, -length / 2, 1.9
    paint = Material(int(rng.choice(_PAINTS)))
    parts = [
        surface(box((front - cab, -half, 0.45), (front, half, 1.55)), paint),
        _glazed(
            (front - cab, front, -half, half),
            (front - cab, front - 0.25, -half + 0.08, half - 0.08),
            (1.55, min(height, 2.75)),
        ),
        surface(box((rear, -0.45, 0.65), (front - cab, 0.45, 0.95)), Material.METAL),
        _wheels([front - 1.1, rear + 1.3, rear + 2.4], half, 0.48, 0.30),
    ]
    start = front - cab - 0.45
    if rng.random() < 0.65:
        cargo = surface(box((rear, -half, 1.05), (start, half, height)), Material.LIGHT_PAINT)
    else:
        flare = frustum(
            (rear + 0.2, start, -half + 0.1, half - 0.1), (rear, start, -half, half), (1.05, 2.2)
        )
        cargo = surface(flare, Material.METAL)
    # a beam along each side between the axles, as lorries carry
    guards = boxes([[(start + rear + 3.0) / 2, side * (half - 0.05), 0.7] for side in (-1, 1)],
                   [max(start - rear - 3.6, 0.5), 0.05, 0.30])  # fmt: skip
    return join([*parts, cargo, surface(guards, Material.METAL)])


def bus(rng: np.random.Generator) -> Mesh:
    """Make a low-floor city bus of 9-12 m with a band of windows."""
    length = float(rng.uniform(9.0, 12.0))
    half, height = 1.25, float(rng.uniform(2.9, 3.15))
    x = length / 2
    paint = Material(int(rng.choice(_PAINTS)))
    # pillars every 1.4 m carry the roof over the glass
    posts = np.linspace(-x + 0.1, x - 0.1, round(length / 1.4))
    pillars = boxes([[p, side * half, 1.75] for p in posts for side in (-1, 1)], [0.16, 0.06, 1.3])
    return join(
        [
            surface(box((-x, -half, 0.28), (x, half, 1.10)), paint),
            surface(
                box((-x + 0.03, -half + 0.04, 1.10), (x - 0.03, half - 0.04, 2.4)), Material.GLASS
            ),
            surface(pillars, paint),
            surface(box((-x, -half, 2.4), (x, half, height)), paint),
            _wheels([-0.26 * length, 0.30 * length], half + 0.01, 0.48, 0.28),
        ]
    )


def caravan(rng: np.random.Generator) -> Mesh:
    """Make a caravan trailer of 4.2-5.5 m: rounded box on one axle with a drawbar."""
    length = float(rng.uniform(4.2, 5.5))
    half, height = float(rng.uniform(1.05, 1.18)), float(rng.uniform(2.45, 2.65))
    x = length / 2
    outline = [
        (-x + 0.1, 0.45), (-x, 1.2), (-x + 0.25, height - 0.15), (-x + 0.6, height),
        (x - 0.8, height), (x - 0.15, height - 0.5), (x, 1.0), (x - 0.35, 0.45),
    ]  # fmt: skip
    windows = boxes([[0.3, side * half, 1.55] for side in (-1, 1)], [length * 0.45, 0.03, 0.5])
    bars = [tube((x - 0.3, side * 0.5, 0.5), (x + 1.1, 0, 0.48), 0.05, sides=5) for side in (-1, 1)]
    leg = tube((x + 0.9, 0, 0.0), (x + 0.9, 0, 0.6), 0.05, sides=5)
    return join(
        [
            surface(extrusion(outline, -half, half), Material.LIGHT_PAINT),
            surface(windows, Material.GLASS),
            surface(np.concatenate([*bars, leg]), Material.METAL),
            _wheels([-0.2], half, 0.32, 0.20),
        ]
    )


def footprint(mesh: Mesh) -> Floats:
    """Return the extent (x length, y width) of a mesh [m]."""
    corners = mesh.triangles.reshape(-1, 3)
    return np.asarray(np.ptp(corners[:, :2], axis=0))
