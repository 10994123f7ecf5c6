"""The surface of the ground: road, kerbs, sidewalks, parking, gravel, terrain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcnn.simulate.mesh import Floats, Mesh, join, surface
from pcnn.simulate.shapes import quads
from pcnn.simulate.streets.layout import WIDTH, Block, Patch, Zone
from pcnn.simulate.streets.materials import MATERIALS, RAW_IDS

Zones = NDArray[np.int64]

# label, material, height above the road in kerbs, and in metres
_GROUND: dict[Zone, tuple[str, str, float, float]] = {
    Zone.TERRAIN: ("terrain", "grass", 1.0, 0.03),
    Zone.ROAD: ("road", "asphalt", 0.0, 0.0),
    Zone.MARKING: ("lane_marking", "road_paint", 0.0, 0.0),
    Zone.PARKING: ("parking", "paving", 0.1, 0.01),
    Zone.SIDEWALK: ("sidewalk", "paving", 1.0, 0.0),
    Zone.GRAVEL: ("other_ground", "gravel", 0.9, 0.0),
    Zone.WILD: ("vegetation", "growth", 1.0, 0.2),
}
_ROWS = [_GROUND[zone] for zone in Zone]
_LABELS = np.array([RAW_IDS[row[0]] for row in _ROWS])
_MATERIALS = np.array([MATERIALS[row[1]] for row in _ROWS], np.uint8)
_KERBS, _EDGES = np.array([row[2:] for row in _ROWS]).T


def draw_relief(rng: np.random.Generator, amplitude: float) -> Floats:
    """Waves of the land [M, 4]: amplitude [m], wave numbers along s and d [rad/m], phase [rad]."""
    length, turn = rng.uniform(5.0, 30.0, 5), rng.uniform(0, 2 * np.pi, 5)
    height, number = amplitude * length / length.sum(), 2 * np.pi / length
    phase = rng.uniform(0, 2 * np.pi, 5)
    return np.stack([height, number * np.cos(turn), number * np.sin(turn), phase], 1)


@dataclass(frozen=True, eq=False)
class Ground:
    """The ground of one block, before the road is bent."""

    block: Block
    relief: Floats  # [M, 4] waves of the terrain
    kerb_height: float  # [m] of the sidewalk above the road
    rise: float = 0.0  # slope of the land up from the kerb
    paved: bool = True  # bays

    @cached_property
    def _patches(self) -> Floats:
        """[P, 5] patches, the uppermost first, with the terrain below them all."""
        whole = Patch(-np.inf, np.inf, -np.inf, np.inf, Zone.TERRAIN)
        return np.array([*reversed(self.block.patches), whole], np.float64)

    def zone(self, s: Floats, d: Floats) -> Zones:
        s0, s1, d0, d1, zones = self._patches.T.reshape(5, -1, *(1 for _ in s.shape))
        inside = (s >= s0) & (s < s1) & (d >= d0) & (d < d1)
        return np.asarray(zones.reshape(-1)[inside.argmax(0)], np.int64)

    def height(self, s: ArrayLike, d: ArrayLike, zone: Zones | None = None) -> Floats:
        """The height at street positions [m]; their zones are found if not given."""
        s, d = np.asarray(s, np.float64), np.asarray(d, np.float64)
        kind = self.zone(s, d) if zone is None else zone
        left, right = self.block.sides
        beyond = np.maximum(np.abs(d) - np.where(d > 0, left.edge, right.edge), 0.0)
        bank = np.where(d > 0, left.bank, right.bank) * np.clip(beyond - 0.5, 0.0, 9.0)
        rise = self.rise * np.clip(np.abs(d) - left.kerb, 0.0, 9.0) + bank
        angle = s[..., None] * self.relief[:, 1] + d[..., None] * self.relief[:, 2]
        wave = (self.relief[:, 0] * np.sin(angle + self.relief[:, 3])).sum(-1)
        # grows over two metres from the sidewalk, and with distance behind the houses
        near = np.minimum(beyond / 2.0, 1.0) * (wave + 0.5 * self.relief[:, 0].sum())
        wild = near + np.maximum(beyond - 20, 0) * wave * 0.08
        land = _KERBS[kind] * self.kerb_height + _EDGES[kind]
        return np.asarray(
            land + rise + np.where(np.isin(kind, (Zone.TERRAIN, Zone.WILD)), wild, 0.0)
        )

    def mesh(self) -> Mesh:
        block, ends = self.block, self._patches[:-1, :4]
        s_lines = _lines(ends[:, :2], block.s0, block.s1, np.linspace(block.s0, block.s1, 21))
        reach = np.concatenate([np.arange(1.0, 16.0, 1.5), np.arange(16.0, WIDTH, 3.0)])
        d_lines = _lines(ends[:, 2:], -WIDTH, WIDTH, np.concatenate([-reach, reach]))
        s0, d0 = np.meshgrid(s_lines[:-1], d_lines[:-1], indexing="ij")
        s1, d1 = np.meshgrid(s_lines[1:], d_lines[1:], indexing="ij")
        zone = self.zone((s0 + s1) / 2, (d0 + d1) / 2)
        # [S, D, 4, 3]: every cell has corners of its own height
        corners = ((s0, d0), (s1, d0), (s1, d1), (s0, d1))
        cells = np.stack([np.stack([s, d, self.height(s, d, zone)], -1) for s, d in corners], 2)
        parts = [self._painted(cells, zone)]
        # steps across d (kerbs) and along s (ends of bays)
        across = cells[:, :-1, [3, 2]], cells[:, 1:, [0, 1]], zone[:, :-1], zone[:, 1:]
        along = cells[:-1, :, [1, 2]], cells[1:, :, [0, 3]], zone[:-1], zone[1:]
        parts += [self._painted(*_steps(*edges)) for edges in (across, along)]
        # aprons hide the seams to the neighbouring blocks, whose lattices differ
        for border, kind in ((cells[0][:, [0, 3]], zone[0]), (cells[-1][:, [1, 2]], zone[-1])):
            apron = np.concatenate([border, border[:, ::-1] - (0, 0, 1.0)], 1)
            parts.append(self._painted(apron, kind))
        return join(parts)

    def _painted(self, faces: Floats, kinds: Zones) -> Mesh:
        """Give each four-cornered face [..., 4, 3] the label and material of its zone."""
        twice = np.repeat(kinds.reshape(-1), 2)
        bay = np.isin(twice, (Zone.PARKING, Zone.GRAVEL)) & (not self.paved)
        materials = np.where(bay, MATERIALS["asphalt"], _MATERIALS[twice]).astype(np.uint8)
        return surface(quads(faces), materials, _LABELS[twice])


def _lines(edges: Floats, low: float, high: float, spacing: Floats) -> Floats:
    inside = edges[(edges > low) & (edges < high)]
    lines = np.unique(np.round(np.concatenate([spacing, inside, [low, high]]), 4))
    return np.asarray(lines[np.insert(np.diff(lines) > 1e-3, 0, True)])


def _steps(near: Floats, far: Floats, zone_near: Zones, zone_far: Zones) -> tuple[Floats, Zones]:
    """Faces where an edge [.., 2, 3] of two cells differs in height, of the kind of the higher."""
    difference = far[..., 2] - near[..., 2]
    uneven = np.abs(difference).max(-1) > 0.005
    kind = np.where(difference.mean(-1) > 0, zone_far, zone_near)
    return np.concatenate([near[uneven], far[uneven][:, ::-1]], axis=1), kind[uneven]
