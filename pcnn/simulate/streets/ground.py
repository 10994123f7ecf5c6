"""The surface of the ground: road, kerbs, sidewalks, parking, gravel, traffic islands, terrain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.mesh import Floats, Mesh, join
from pcnn.simulate.primitives import quads
from pcnn.simulate.streets.layout import WIDTH, Block, Side
from pcnn.simulate.streets.zones import EDGE, MATERIAL, RAISED, RAW_ID, Zone, zone_at

Zones = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Relief:
    """Lie of the land beyond the sidewalks: a slope on either side, and waves of the terrain."""

    waves: Floats  # [M, 4]: amplitude [m], wave numbers along s and d [rad/m], phase [rad]
    banks: tuple[float, float]  # slope away from the street, left and right

    @staticmethod
    def draw(rng: np.random.Generator, amplitude: float, banks: tuple[float, float]) -> Relief:
        """Draw five waves of 5-30 m whose heights add up to about `amplitude`."""
        length = rng.uniform(5.0, 30.0, 5)
        turn = rng.uniform(0, 2 * np.pi, 5)
        number = 2 * np.pi / length
        height = amplitude * length / length.sum()
        phase = rng.uniform(0, 2 * np.pi, 5)
        waves = np.stack([height, number * np.cos(turn), number * np.sin(turn), phase], 1)
        return Relief(waves, banks)

    def bank(self, d: Floats, sides: tuple[Side, Side]) -> Floats:
        """Return what the slopes add to the height at distances d from the centre line [m]."""
        d = np.asarray(d, np.float64)
        left = d > 0
        beyond = np.abs(d) - np.where(left, sides[0].edge, sides[1].edge)
        # begins within two metres of the sidewalk, ends 45 m behind it
        run = np.clip(beyond, 0.0, 45.0)
        slope = np.where(left, self.banks[0], self.banks[1])
        return np.asarray(slope * run * run / (run + 2.0))

    def __call__(self, s: Floats, d: Floats, sides: tuple[Side, Side]) -> Floats:
        """Return the height of the terrain above its slope at (s, d) [m]."""
        edge = np.where(d > 0, sides[0].edge, sides[1].edge)
        beyond = np.clip(np.abs(d) - edge, 0.0, None)
        angle = s[..., None] * self.waves[:, 1] + d[..., None] * self.waves[:, 2]
        wave = (self.waves[:, 0] * np.sin(angle + self.waves[:, 3])).sum(-1)
        # grows over three metres from the sidewalk, and with distance behind the houses
        ramp = np.clip(beyond / 3.0, 0.0, 1.0)
        return np.asarray(
            ramp * (wave + self.waves[:, 0].sum()) + np.clip(beyond - 20, 0, None) * wave * 0.08
        )


def height(
    block: Block,
    relief: Relief,
    kerb_height: float,
    s: Floats,
    d: Floats,
    zone: Zones | None = None,
) -> Floats:
    """Return the height of the ground [m] at street positions, before the road is bent.

    Args:
        block: the block that holds the positions.
        relief: undulation of the terrain.
        kerb_height: of the sidewalk above the road [m].
        s: positions along the street.
        d: positions across it.
        zone: the zones of the positions where they are known already.
    """
    s, d = np.asarray(s, np.float64), np.asarray(d, np.float64)
    kind = zone_at(list(block.patches), s, d) if zone is None else zone
    flat = RAISED[kind] * kerb_height + EDGE[kind]
    land = flat + relief.bank(d, block.sides)
    return np.asarray(land + np.where(kind == Zone.TERRAIN, relief(s, d, block.sides), 0.0))


def _lines(edges: list[float], low: float, high: float, spacing: Floats) -> Floats:
    """Merge patch edges with evenly spread lines, dropping lines that nearly coincide."""
    inside = [e for e in edges if low < e < high]
    lines = np.unique(np.round(np.concatenate([spacing, inside, [low, high]]), 4))
    keep = np.ones(len(lines), bool)
    keep[1:] = np.diff(lines) > 1e-3
    return np.asarray(lines[keep])


def ground_mesh(block: Block, relief: Relief, kerb_height: float) -> Mesh:
    """Make the ground of a block: a lattice of cells, and upright faces where heights differ."""
    patches = list(block.patches)
    s_lines = _lines(
        [e for p in patches for e in (p.s0, p.s1)],
        block.s0, block.s1, np.linspace(block.s0, block.s1, 21),
    )  # fmt: skip
    reach = np.concatenate([np.arange(1.0, 16.0, 1.5), np.arange(16.0, WIDTH, 3.0)])
    d_lines = _lines(
        [e for p in patches for e in (p.d0, p.d1)],
        -WIDTH, WIDTH, np.concatenate([-reach, reach]),
    )  # fmt: skip
    s0, d0 = np.meshgrid(s_lines[:-1], d_lines[:-1], indexing="ij")
    s1, d1 = np.meshgrid(s_lines[1:], d_lines[1:], indexing="ij")
    zone = zone_at(patches, (s0 + s1) / 2, (d0 + d1) / 2)

    def corner(s: Floats, d: Floats) -> Floats:
        z = height(block, relief, kerb_height, s, d, zone)
        return np.stack([s, d, z], -1)

    # [S, D, 4, 3]: every cell has corners of its own height
    cells = np.stack([corner(s0, d0), corner(s1, d0), corner(s1, d1), corner(s0, d1)], axis=2)
    kinds = zone.reshape(-1)
    parts = [_painted(cells.reshape(-1, 4, 3), kinds)]
    # steps across d (kerbs) and along s (ends of bays and islands)
    parts.append(_steps(cells[:, :-1, [3, 2]], cells[:, 1:, [0, 1]], zone[:, :-1], zone[:, 1:]))
    parts.append(_steps(cells[:-1, :, [1, 2]], cells[1:, :, [0, 3]], zone[:-1], zone[1:]))
    # aprons hide the seams to the neighbouring blocks, whose lattices differ
    for border, kind in ((cells[0][:, [0, 3]], zone[0]), (cells[-1][:, [1, 2]], zone[-1])):
        parts.append(_painted(np.concatenate([border, border[:, ::-1] - (0, 0, 1.0)], 1), kind))
    return join(parts)


def _steps(near: Floats, far: Floats, zone_near: Zones, zone_far: Zones) -> Mesh:
    """Make faces where an edge [.., 2, 3] of two cells differs in height; the higher paints it."""
    difference = far[..., 2] - near[..., 2]
    uneven = np.abs(difference).max(-1) > 0.005
    kind = np.where(difference.mean(-1) > 0, zone_far, zone_near)
    return _painted(np.concatenate([near[uneven], far[uneven][:, ::-1]], axis=1), kind[uneven])


def _painted(faces: Floats, kinds: Zones) -> Mesh:
    """Give each four-cornered face [Q, 4, 3] the label and material of its zone."""
    twice = np.concatenate([kinds, kinds])
    return Mesh(
        triangles=quads(faces),
        raw_ids=RAW_ID[twice].astype(np.uint16),
        materials=MATERIAL[twice].astype(np.uint8),
        instances=np.zeros(len(twice), np.uint16),
    )
