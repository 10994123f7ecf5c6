"""A furnished room, ready to be looked at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.interiors.furnish import furnish
from pcnn.simulate.interiors.paint import Paint, Palette
from pcnn.simulate.interiors.settings import RoomSettings, Split, draw_settings
from pcnn.simulate.interiors.shell import build_shell
from pcnn.simulate.interiors.site import Site
from pcnn.simulate.mesh import Floats, Mesh, join
from pcnn.simulate.raycast import RayCaster


@dataclass(frozen=True, eq=False)
class Room:
    """Triangles in metres; x in 0..width, y in 0..depth, z up from the floor."""

    room_type: str
    settings: RoomSettings
    mesh: Mesh  # raw ids are S3DIS labels, materials are rows of `paints`
    paints: list[Paint]
    lights: Floats  # [L, 3]
    normals: Floats  # [F, 3] of unit length, of either sign
    caster: RayCaster

    def clearance(self, points: Floats, rays: int = 24) -> Floats:
        """Return the horizontal distance from points [P, 3] to whatever is nearest [m]."""
        turn = np.arange(rays) * (2 * np.pi / rays)
        around = np.stack([np.cos(turn), np.sin(turn), np.zeros(rays)], 1)
        return np.array([self.caster.first_faces(p, around)[0].min() for p in points], np.float64)


def build_room(rng: np.random.Generator, room_type: str, split: Split) -> Room:
    """Build one room from a random stream.

    Args:
        rng: random stream; equal streams give equal rooms.
        room_type: one of the S3DIS room types, or `guestRoom`.
        split: from whose ranges the settings are drawn.

    Raises:
        ValueError: an unknown room type or split.
    """
    settings = draw_settings(rng, room_type, split)
    site = Site(rng, settings, Palette(rng))
    lights = build_shell(site)
    furnish(site, room_type)
    mesh = join(site.meshes)
    edges = mesh.triangles[:, 1:] - mesh.triangles[:, :1]
    normals = np.cross(edges[:, 0], edges[:, 1])
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    solid: NDArray[np.bool_] = length[:, 0] > 1e-12  # points of lathes and cushions are degenerate
    mesh = Mesh(
        mesh.triangles[solid], mesh.raw_ids[solid], mesh.materials[solid], mesh.instances[solid]
    )
    return Room(
        room_type=room_type,
        settings=settings,
        mesh=mesh,
        paints=site.palette.paints,
        lights=np.asarray(lights, np.float64),
        normals=normals[solid] / length[solid],
        caster=RayCaster(mesh),
    )
