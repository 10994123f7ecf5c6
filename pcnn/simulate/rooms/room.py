"""A furnished room, ready to be scanned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcnn.simulate.mesh import Floats, Mesh, RayCaster, join
from pcnn.simulate.rooms.furnish import furnish
from pcnn.simulate.rooms.lived_in import groups, litter, styles
from pcnn.simulate.rooms.paint import Paint, Palette
from pcnn.simulate.rooms.settings import RoomSettings, draw_settings
from pcnn.simulate.rooms.shell import build_shell
from pcnn.simulate.rooms.site import Site
from pcnn.simulate.simulator import Split


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
        """Return the horizontal distance from points [P, 3] to the nearest surface [m]."""
        turn = np.arange(rays) * (2 * np.pi / rays)
        around = np.stack([np.cos(turn), np.sin(turn), np.zeros(rays)], 1)
        return np.array([self.caster.first_faces(p, around)[0].min() for p in points], np.float64)


def build_room(
    rng: np.random.Generator, room_type: str, split: Split, lived_in: bool = False
) -> Room:
    settings = draw_settings(rng, room_type, split)
    site = Site(rng, settings, Palette(rng))
    if lived_in:
        site.styles = styles(site)
    lights = build_shell(site)
    if lived_in:
        groups(site, room_type)
    furnish(site, room_type)
    if lived_in:
        litter(site)
    return Room.of(settings, join(site.meshes), site.palette.paints, lights)
