"""Triangles with a label, a material and an instance each, and the rays that meet them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


def cell_noise(cells: NDArray[Any], salt: int = 0) -> Floats:
    """Draw a number in [0, 1) for each integer cell [..., 3], equal for equal cells and salts."""
    # integer mixing in the manner of Murmur3's finaliser; overflow wraps and is meant
    i = cells.astype(np.int64).view(np.uint64)
    key = i[..., 0] * _FACTORS[0] + i[..., 1] * _FACTORS[1]
    key += i[..., 2] * _FACTORS[2] + np.uint64(salt * 0x27D4EB2F165667C5 % 2**64)
    key ^= key >> np.uint64(33)
    key *= np.uint64(0xFF51AFD7ED558CCD)
    key ^= key >> np.uint64(33)
    key *= np.uint64(0xC4CEB9FE1A85EC53)
    key ^= key >> np.uint64(33)
    return np.asarray((key >> np.uint64(11)).astype(np.float64) / 2.0**53)


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
        return len(self.triangles)

    def moved(self, x: float, y: float, z: float = 0.0, yaw: float = 0.0) -> Mesh:
        """Return the mesh turned by `yaw` [rad] about z, then shifted by (x, y, z) [m]."""
        return replace(self, triangles=self.triangles @ rotation_z(yaw).T + np.array([x, y, z]))

    def labelled(self, label: int, instance: int = 0) -> Mesh:
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


@dataclass(frozen=True, eq=False)
class Hits:
    """The first hit of each ray."""

    distance: Floats  # [R] metres, inf without a hit
    cosine: Floats  # [R] of the angle of incidence, 0..1
    labels: NDArray[np.uint16]  # [R] 0 without a hit
    materials: NDArray[np.uint8]  # [R]
    instances: NDArray[np.uint16]  # [R]

    def nearer(self, other: Hits) -> Hits:
        mine = self.distance <= other.distance
        return Hits(
            *(np.where(mine, getattr(self, f.name), getattr(other, f.name)) for f in fields(Hits))
        )

    def put(self, rows: NDArray[np.int64], hits: Hits) -> None:
        for f in fields(Hits):
            getattr(self, f.name)[rows] = getattr(hits, f.name)

    @staticmethod
    def none(rays: int) -> Hits:
        zero = np.zeros(rays, np.uint16)
        return Hits(np.full(rays, np.inf), np.zeros(rays), zero, zero.astype(np.uint8), zero.copy())


class RayCaster:
    """An Embree scene of one mesh.

    Embree works in float32: keep the mesh within some 200 m of the origin for a precision of 0.02
    mm.
    """

    def __init__(self, mesh: Mesh) -> None:
        from embreex.mesh_construction import TriangleMesh
        from embreex.rtcore_scene import EmbreeScene

        self._mesh = mesh
        self._scene = None
        if len(mesh):
            self._scene = EmbreeScene()
            # the scene refers to the geometry by number only, so both live as long as this object
            self._geometry = TriangleMesh(self._scene, mesh.triangles.astype(np.float32))

    def cast(self, origin: Floats, directions: Floats) -> Hits:
        if self._scene is None or len(directions) == 0:
            return Hits.none(len(directions))
        answer = self._run(origin, directions)
        met = answer["primID"] >= 0
        face = np.where(met, answer["primID"], 0)
        normal = answer["Ng"].astype(np.float64)
        across = np.abs(np.einsum("rc,rc->r", normal, directions))
        return Hits(
            distance=np.where(met, answer["tfar"], np.inf).astype(np.float64),
            cosine=np.clip(across / np.maximum(np.linalg.norm(normal, axis=1), 1e-20), 0.0, 1.0),
            labels=np.where(met, self._mesh.labels[face], 0).astype(np.uint16),
            materials=self._mesh.materials[face],
            instances=np.where(met, self._mesh.instances[face], 0).astype(np.uint16),
        )

    def first_faces(
        self, origin: Floats, directions: Floats
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find distance and triangle of every first hit; arguments as of `cast`."""
        rays = len(directions)
        if self._scene is None or rays == 0:
            return np.full(rays, np.inf, np.float32), np.full(rays, -1, np.int64)
        answer = self._run(origin, directions)
        face = answer["primID"].astype(np.int64)
        return np.where(face >= 0, answer["tfar"], np.float32(np.inf)), face

    def _run(self, origin: Floats, directions: Floats) -> dict[str, NDArray[Any]]:
        assert self._scene is not None
        toward = np.ascontiguousarray(directions, np.float32)
        starts = np.ascontiguousarray(np.broadcast_to(origin, toward.shape), np.float32)
        answer: dict[str, NDArray[Any]] = self._scene.run(
            starts, toward, query="INTERSECT", output=True
        )
        return answer
