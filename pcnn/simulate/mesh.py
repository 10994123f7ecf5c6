"""Triangles with a raw label, a material and an instance each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.materials import Material

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Mesh:
    """A soup of triangles: no shared corners, so that parts join by concatenation."""

    triangles: Floats  # [F, 3, 3] corners [m]
    raw_ids: NDArray[np.uint16]  # [F] raw SemanticKITTI ids
    materials: NDArray[np.uint8]  # [F] rows of the material tables
    instances: NDArray[np.uint16]  # [F] 0: not a thing

    def __len__(self) -> int:
        """Return the number of triangles."""
        return len(self.triangles)

    def moved(self, x: float, y: float, z: float = 0.0, yaw: float = 0.0) -> Mesh:
        """Return the mesh turned by `yaw` [rad] about z, then shifted by (x, y, z) [m]."""
        c, s = np.cos(yaw), np.sin(yaw)
        turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        return replace(self, triangles=self.triangles @ turn + np.array([x, y, z]))

    def scaled(self, factor: float) -> Mesh:
        """Return the mesh scaled about its origin."""
        return replace(self, triangles=self.triangles * factor)

    def labelled(self, raw_id: int, instance: int = 0) -> Mesh:
        """Return the mesh with one raw id and one instance on every triangle."""
        return replace(
            self,
            raw_ids=np.full(len(self), raw_id, np.uint16),
            instances=np.full(len(self), instance, np.uint16),
        )


def surface(triangles: Floats, material: Material, raw_id: int = 0) -> Mesh:
    """Make a mesh of one material from triangles [F, 3, 3]."""
    count = len(triangles)
    return Mesh(
        triangles=np.asarray(triangles, np.float64).reshape(count, 3, 3),
        raw_ids=np.full(count, raw_id, np.uint16),
        materials=np.full(count, material, np.uint8),
        instances=np.zeros(count, np.uint16),
    )


def join(meshes: Iterable[Mesh]) -> Mesh:
    """Concatenate meshes; none at all gives a mesh of no triangles."""
    parts = [mesh for mesh in meshes if len(mesh)]
    if not parts:
        return surface(np.zeros((0, 3, 3)), Material.ASPHALT)
    return Mesh(
        triangles=np.concatenate([part.triangles for part in parts]),
        raw_ids=np.concatenate([part.raw_ids for part in parts]),
        materials=np.concatenate([part.materials for part in parts]),
        instances=np.concatenate([part.instances for part in parts]),
    )
