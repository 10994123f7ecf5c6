"""Rooms of a few boxes, whose depth images are known."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.interiors.paint import Paint
from pcnn.simulate.interiors.room import Room
from pcnn.simulate.interiors.settings import draw_settings
from pcnn.simulate.interiors.shapes import painted
from pcnn.simulate.mesh import join
from pcnn.simulate.primitives import box
from pcnn.simulate.raycast import RayCaster


def bare_room(*boxes: tuple[tuple[float, float, float], tuple[float, float, float], Paint]) -> Room:
    """A room of nothing but boxes (low corner, high corner, paint)."""
    meshes = [painted(box(low, high), number, 2) for number, (low, high, _) in enumerate(boxes)]
    mesh = join(meshes)
    edges = mesh.triangles[:, 1:] - mesh.triangles[:, :1]
    normals = np.cross(edges[:, 0], edges[:, 1])
    return Room(
        room_type="office",
        settings=draw_settings(np.random.default_rng(0), "office", "train"),
        mesh=mesh,
        paints=[paint for _, _, paint in boxes],
        lights=np.array([[0.0, 0.0, 2.0]]),
        normals=normals / np.linalg.norm(normals, axis=1, keepdims=True),
        caster=RayCaster(mesh),
    )


def wall(distance: float, paint: Paint) -> tuple[tuple[float, ...], tuple[float, ...], Paint]:
    """A wall across the x axis, `distance` metres from the origin."""
    return (distance, -9.0, -9.0), (distance + 0.1, 9.0, 9.0), paint
