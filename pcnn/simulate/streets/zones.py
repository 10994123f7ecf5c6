"""Kinds of ground, and which of them lies where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.materials import Material
from pcnn.simulate.mesh import Floats
from pcnn.simulate.streets.raw_ids import RawId


class Zone(IntEnum):
    """Kinds of ground; the value is the row in the tables below."""

    TERRAIN = 0
    ROAD = 1
    MARKING = 2
    PARKING = 3
    SIDEWALK = 4
    GRAVEL = 5
    ISLAND = 6


RAW_ID = np.array(
    [
        RawId.TERRAIN,
        RawId.ROAD,
        RawId.LANE_MARKING,
        RawId.PARKING,
        RawId.SIDEWALK,
        RawId.OTHER_GROUND,
        RawId.OTHER_GROUND,
    ]
)
MATERIAL = np.array(
    [
        Material.GRASS,
        Material.ASPHALT,
        Material.ROAD_PAINT,
        Material.PAVING,
        Material.PAVING,
        Material.GRAVEL,
        Material.CONCRETE,
    ]
)
# which zones stand a kerb higher than the road, and which a shallow edge
RAISED = np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.9, 1.3])
EDGE = np.array([0.0, 0.0, 0.0, 0.03, 0.0, 0.0, 0.0])


@dataclass(frozen=True)
class Patch:
    """A rectangle of one kind of ground in street coordinates; later patches cover earlier ones."""

    s0: float
    s1: float
    d0: float
    d1: float
    zone: Zone


def zone_at(patches: list[Patch], s: Floats, d: Floats) -> NDArray[np.int64]:
    """Return the zone of each position (s, d), terrain where no patch lies."""
    zone = np.full(np.broadcast(s, d).shape, int(Zone.TERRAIN), np.int64)
    for patch in patches:
        inside = (s >= patch.s0) & (s < patch.s1) & (d >= patch.d0) & (d < patch.d1)
        zone[inside] = patch.zone
    return zone
