"""Triangles with a label, a material and an instance each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rotation_z(yaw: float) -> Floats:
    """Return the matrix [3, 3] that turns columns by `yaw` [rad] about z."""
    c, s = np.cos(yaw), np.sin(yaw)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles that share no corners, so that parts are joined by concatenation."""

    triangles: Floats  # [F, 3, 3] corners [m]
    labels: NDArray[np.uint16]  # [F] classes: raw SemanticKITTI ids, or S3DIS classes
    materials: NDArray[np.uint8]  # [F] numbers of materials or paints
    instances: NDArray[np.uint16]  # [F] 0: not an instance

    def __len__(self) -> int:
        """Return the number of triangles."""
        return len(self.triangles)

    def moved(self, x: float, y: float, z: float = 0.0, yaw: float = 0.0) -> Mesh:
        """Return the mesh turned by `yaw` [rad] about z, then shifted by (x, y, z) [m]."""
        return replace(self, triangles=self.triangles @ rotation_z(yaw).T + np.array([x, y, z]))

    def scaled(self, factor: float) -> Mesh:
        """Return the mesh scaled about its origin."""
        return replace(self, triangles=self.triangles * factor)

    def labelled(self, label: int, instance: int = 0) -> Mesh:
        """Return the mesh with one label and one instance on every triangle."""
        return surface(self.triangles, self.materials, label, instance)

    def chosen(self, rows: NDArray[np.bool_]) -> Mesh:
        """Return the triangles of a mask [F]."""
        return Mesh(
            self.triangles[rows], self.labels[rows], self.materials[rows], self.instances[rows]
        )


def surface(
    triangles: Floats,
    material: int | NDArray[np.uint8],
    label: int | NDArray[np.int64] = 0,
    instance: int = 0,
) -> Mesh:
    """Make a mesh from triangles [F, 3, 3]; material and label are one for all, or [F]."""
    count = len(triangles)
    return Mesh(
        triangles=np.asarray(triangles, np.float64),
        labels=np.broadcast_to(label, count).astype(np.uint16),
        materials=np.broadcast_to(material, count).astype(np.uint8),
        instances=np.full(count, instance, np.uint16),
    )


def join(meshes: Iterable[Mesh]) -> Mesh:
    """Concatenate meshes; without any, the mesh has no triangles."""
    parts = [mesh for mesh in meshes if len(mesh)]
    if not parts:
        return surface(np.zeros((0, 3, 3)), 0)
    return Mesh(
        np.concatenate([part.triangles for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.materials for part in parts]),
        np.concatenate([part.instances for part in parts]),
    )
