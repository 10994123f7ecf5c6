"""First hits of rays with triangles, by Embree."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.errors import MissingPackageError
from pcnn.simulate.mesh import Floats, Mesh


@dataclass(frozen=True, eq=False)
class Hits:
    """The first hit of each ray."""

    distance: Floats  # [R] metres, inf without a hit
    cosine: Floats  # [R] of the angle of incidence, 0..1
    labels: NDArray[np.uint16]  # [R] 0 without a hit
    materials: NDArray[np.uint8]  # [R]
    instances: NDArray[np.uint16]  # [R]

    def nearer(self, other: Hits) -> Hits:
        """Return for every ray the nearer one of two hits."""
        mine = self.distance <= other.distance
        return Hits(
            *(np.where(mine, getattr(self, f.name), getattr(other, f.name)) for f in fields(Hits))
        )

    def put(self, rows: NDArray[np.int64], hits: Hits) -> None:
        """Write the hits of some rays, given by their rows, in place."""
        for f in fields(Hits):
            getattr(self, f.name)[rows] = getattr(hits, f.name)

    @staticmethod
    def none(rays: int) -> Hits:
        """Return rays without a hit."""
        zero = np.zeros(rays, np.uint16)
        return Hits(np.full(rays, np.inf), np.zeros(rays), zero, zero.astype(np.uint8), zero.copy())


class RayCaster:
    """An Embree scene of one mesh.

    Embree works in float32: keep the mesh within some 200 m of the origin for a precision of 0.02
    mm.
    """

    def __init__(self, mesh: Mesh) -> None:
        """Build the acceleration structure."""
        try:
            from embreex.mesh_construction import TriangleMesh
            from embreex.rtcore_scene import EmbreeScene
        except ImportError as error:
            raise MissingPackageError(
                "simulated scans need Embree: install it with `pip install embreex`"
            ) from error
        self._mesh = mesh
        self._scene = None
        if len(mesh):
            self._scene = EmbreeScene()
            # the scene refers to the geometry by number only, so both live as long as this object
            self._geometry = TriangleMesh(self._scene, mesh.triangles.astype(np.float32))

    def cast(self, origin: Floats, directions: Floats) -> Hits:
        """Find the first hit of every ray."""
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
