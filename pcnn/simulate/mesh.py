"""Triangles with a label, a material and an instance each, and the rays that meet them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


def cell_noise(cells: NDArray[Any]) -> Floats:
    """Draw a number in [0, 1) for each integer cell [..., 3], equal for equal cells."""
    # integer mixing in the manner of Murmur3's finaliser; overflow wraps and is meant
    key = (cells.astype(np.int64).view(np.uint64) * _FACTORS).sum(-1, dtype=np.uint64)
    key ^= key >> np.uint64(33)
    key *= np.uint64(0xFF51AFD7ED558CCD)
    key ^= key >> np.uint64(33)
    key *= np.uint64(0xC4CEB9FE1A85EC53)
    key ^= key >> np.uint64(33)
    return np.asarray((key >> np.uint64(11)).astype(np.float64) / 2.0**53)


def rotation_z(yaw: float) -> Floats:
    """The matrix [3, 3] that turns columns by `yaw` [rad] about z."""
    c, s = np.cos(yaw), np.sin(yaw)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles that share no corners, so that parts are joined by concatenation."""

    triangles: Floats  # [F, 3, 3] corners [m]
    labels: NDArray[np.uint16]  # [F] classes: raw SemanticKITTI ids, or S3DIS classes
    materials: NDArray[np.uint8]  # [F] numbers of materials or paints
    instances: NDArray[np.uint16]  # [F] numbers of objects in a room

    def __len__(self) -> int:
        return len(self.triangles)

    def moved(self, x: float, y: float, z: float = 0.0, yaw: float = 0.0) -> Mesh:
        """The mesh turned by `yaw` [rad] about z, then shifted by (x, y, z) [m]."""
        return replace(self, triangles=self.triangles @ rotation_z(yaw).T + np.array([x, y, z]))

    def chosen(self, rows: NDArray[np.bool_]) -> Mesh:
        """The triangles of a mask [F]."""
        return Mesh(*(getattr(self, f.name)[rows] for f in fields(Mesh)))


def surface(
    triangles: Floats,
    material: int | NDArray[np.uint8],
    label: int | NDArray[np.int64] = 0,
) -> Mesh:
    """Make a mesh from triangles [F, 3, 3]; material and label are one for all, or [F]."""
    count = len(triangles)
    return Mesh(
        triangles=np.asarray(triangles, np.float64),
        labels=np.broadcast_to(label, count).astype(np.uint16),
        materials=np.broadcast_to(material, count).astype(np.uint8),
        instances=np.zeros(count, np.uint16),
    )


def join(meshes: Iterable[Mesh]) -> Mesh:
    parts = [surface(np.zeros((0, 3, 3)), 0), *meshes]
    return Mesh(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Mesh)))


@dataclass(frozen=True, eq=False)
class Hits:
    """The first hit of each ray."""

    distance: Floats  # [R] metres, inf without a hit
    cosine: Floats  # [R] of the angle of incidence, 0..1
    labels: NDArray[np.uint16]  # [R] 0 without a hit
    materials: NDArray[np.uint8]  # [R]

    def put_nearer(self, rows: NDArray[np.int64], hits: Hits) -> None:
        """Put hits of some rays in the place of those that lie behind them."""
        nearer = hits.distance < self.distance[rows]
        for f in fields(Hits):
            getattr(self, f.name)[rows[nearer]] = getattr(hits, f.name)[nearer]


class RayCaster:
    """An Embree scene of one mesh.

    Embree works in float32: keep the mesh within some 200 m of the origin for a precision of 0.02
    mm.
    """

    def __init__(self, mesh: Mesh) -> None:
        from embreex.mesh_construction import TriangleMesh
        from embreex.rtcore_scene import EmbreeScene

        self._mesh = mesh
        self._scene = EmbreeScene() if len(mesh) else None
        if self._scene is not None:
            # the scene refers to the geometry by number only, so both live as long as this object
            self._geometry = TriangleMesh(self._scene, mesh.triangles.astype(np.float32))

    def cast(self, origin: Floats, directions: Floats) -> Hits:
        """Find the first hits of rays from one origin [3], or one each [R, 3]."""
        distance, face = self.first_faces(origin, directions)
        met, rays = face >= 0, len(face)
        labels, materials = np.zeros(rays, np.uint16), np.zeros(rays, np.uint8)
        cosine = np.zeros(rays)
        face = face[met]
        corners = self._mesh.triangles[face]
        normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        across = np.abs(np.einsum("rc,rc->r", normal, directions[met]))
        cosine[met] = np.clip(across / np.maximum(np.linalg.norm(normal, axis=1), 1e-20), 0.0, 1.0)
        labels[met], materials[met] = self._mesh.labels[face], self._mesh.materials[face]
        return Hits(distance.astype(np.float64), cosine, labels, materials)

    def first_faces(
        self, origin: Floats, directions: Floats
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find distance and triangle of every first hit: infinite and -1 where there is none."""
        rays = len(directions)
        if self._scene is None or rays == 0:
            return np.full(rays, np.inf, np.float32), np.full(rays, -1, np.int64)
        toward = np.ascontiguousarray(directions, np.float32)
        starts = np.ascontiguousarray(np.broadcast_to(origin, toward.shape), np.float32)
        answer = self._scene.run(starts, toward, query="INTERSECT", output=True)
        face = answer["primID"].astype(np.int64)
        return np.where(face >= 0, answer["tfar"], np.float32(np.inf)), face
