"""A furnished room: its drawn settings, and its triangles ready to be scanned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.files.bounded import read_yaml
from pcnn.simulate.mesh import Floats, Mesh, RayCaster
from pcnn.simulate.rooms.paint import Paint
from pcnn.simulate.simulator import Split, draw, drawn

#: kinds of rooms by name: those of S3DIS in their order
TYPES: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_name("room_types.yaml"))


@dataclass(frozen=True)
class RoomSettings:
    """Settings of one room, lengths in metres.

    The second range is of held-out rooms, which shift what another building would shift.
    """

    width: float
    depth: float
    height: float
    furnishing: float = drawn((0.6, 1.3), (0.9, 1.5))  # factor on pieces of furniture
    clutter: float = drawn((0.5, 1.8), (1.0, 2.0))  # factor on small things
    window_share: float = drawn((0.2, 0.8), (0.4, 0.9))  # chance in a stretch of outer wall
    disorder: float = drawn((0.02, 0.3), (0.1, 0.4))  # of chairs from where they belong
    brightness: float = drawn((0.7, 1.25), (0.6, 1.0))  # of the light
    warmth: float = drawn((0.0, 0.8), (0.4, 1.0))  # of the light: 0 neutral, 1 like a bulb

    @property
    def area(self) -> float:
        """Of the floor [m²]."""
        return self.width * self.depth


def draw_settings(rng: np.random.Generator, room_type: str, split: Split) -> RoomSettings:
    ranges = draw(rng, RoomSettings, split)
    width, depth, height = np.round(rng.uniform(*TYPES[room_type]["size"]), 3).tolist()
    return RoomSettings(width, depth, height, **ranges)


@dataclass(frozen=True, eq=False)
class Room:
    """Triangles in metres; x in 0..width, y in 0..depth, z up from the floor."""

    settings: RoomSettings
    mesh: Mesh  # labels are those of S3DIS, materials are rows of `paints`
    paints: list[Paint]
    lights: Floats  # [L, 3]
    normals: Floats  # [F, 3] of unit length, of either sign
    caster: RayCaster

    @staticmethod
    def of(settings: RoomSettings, mesh: Mesh, paints: list[Paint], lights: Floats) -> Room:
        edges = mesh.triangles[:, 1:] - mesh.triangles[:, :1]
        normals = np.cross(edges[:, 0], edges[:, 1])
        length = np.linalg.norm(normals, axis=1)
        solid = length > 1e-12
        mesh = mesh.chosen(solid)
        normals = normals[solid] / length[solid, None]
        return Room(settings, mesh, paints, lights, normals, RayCaster(mesh))

    def clearance(self, points: Floats, rays: int = 24) -> Floats:
        """The horizontal distance from points [P, 3] to the nearest surface [m]."""
        turn = np.arange(rays) * (2 * np.pi / rays)
        around = np.stack([np.cos(turn), np.sin(turn), np.zeros(rays)], 1)
        return np.array([self.caster.first_faces(p, around)[0].min() for p in points], np.float64)
