"""First hits of rays with triangles, by Embree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.errors import MissingPackageError
from pcnn.simulate.mesh import Mesh


@dataclass(frozen=True, eq=False)
class Hits:
    """What each ray met first."""

    distance: NDArray[np.float64]  # [R] metres, inf where nothing was met
    cosine: NDArray[np.float64]  # [R] of the angle of incidence, 0..1
    raw_ids: NDArray[np.uint16]  # [R] 0 where nothing was met
    materials: NDArray[np.uint8]  # [R]
    instances: NDArray[np.uint16]  # [R]

    def nearer(self, other: Hits) -> Hits:
        """Return for every ray whichever of two hits lies nearer."""
        mine = self.distance <= other.distance
        return Hits(
            np.where(mine, self.distance, other.distance),
            np.where(mine, self.cosine, other.cosine),
            np.where(mine, self.raw_ids, other.raw_ids),
            np.where(mine, self.materials, other.materials),
            np.where(mine, self.instances, other.instances),
        )

    def put(self, rows: NDArray[np.int64], hits: Hits) -> None:
        """Write the hits of some rays, given by their rows, in place."""
        self.distance[rows] = hits.distance
        self.cosine[rows] = hits.cosine
        self.raw_ids[rows] = hits.raw_ids
        self.materials[rows] = hits.materials
        self.instances[rows] = hits.instances

    @staticmethod
    def none(rays: int) -> Hits:
        """Return the hits of rays that met nothing."""
        return Hits(
            np.full(rays, np.inf),
            np.zeros(rays),
            np.zeros(rays, np.uint16),
            np.zeros(rays, np.uint8),
            np.zeros(rays, np.uint16),
        )


class RayCaster:
    """An Embree scene of one mesh.

    Embree works in float32: keep the mesh within some 200 m of the origin for a precision of 0.02
    mm.
    """

    def __init__(self, mesh: Mesh) -> None:
        """Build the acceleration structure.

        Args:
            mesh: the triangles; none at all is allowed and meets no ray.

        Raises:
            MissingPackageError: `embreex` is not installed.
        """
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

    def cast(self, origin: NDArray[np.float64], directions: NDArray[np.float64]) -> Hits:
        """Follow rays to what they meet first.

        Args:
            origin: [3] of all rays or [R, 3] of each, in the coordinates of the mesh.
            directions: [R, 3] of unit length.

        Returns:
            The first hit of every ray.
        """
        rays = len(directions)
        if self._scene is None or rays == 0:
            return Hits.none(rays)
        answer, toward = self._run(origin, directions)
        face = answer["primID"]
        met = face >= 0
        face = np.where(met, face, 0)
        normal = answer["Ng"].astype(np.float64)
        length = np.linalg.norm(normal, axis=1)
        across = np.abs(np.einsum("rc,rc->r", normal, toward))
        return Hits(
            distance=np.where(met, answer["tfar"], np.inf).astype(np.float64),
            cosine=np.clip(across / np.maximum(length, 1e-20), 0.0, 1.0),
            raw_ids=np.where(met, self._mesh.raw_ids[face], 0).astype(np.uint16),
            materials=self._mesh.materials[face],
            instances=np.where(met, self._mesh.instances[face], 0).astype(np.uint16),
        )

    def first_faces(
        self, origin: NDArray[np.float64], directions: NDArray[np.float64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Follow rays; tell only where and what each meets first.

        Args:
            origin: [3] of all rays or [R, 3] of each, in the coordinates of the mesh.
            directions: [R, 3] of unit length.

        Returns:
            Distances [R] in metres, inf where nothing was met, and triangles [R], -1 there.
        """
        rays = len(directions)
        if self._scene is None or rays == 0:
            return np.full(rays, np.inf, np.float32), np.full(rays, -1, np.int64)
        answer, _ = self._run(origin, directions)
        face = answer["primID"].astype(np.int64)
        return np.where(face >= 0, answer["tfar"], np.float32(np.inf)), face

    def _run(
        self, origin: NDArray[np.float64], directions: NDArray[np.float64]
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
        assert self._scene is not None
        toward = np.ascontiguousarray(directions, np.float32)
        starts = np.ascontiguousarray(np.broadcast_to(origin, toward.shape), np.float32)
        return self._scene.run(starts, toward, query="INTERSECT", output=True), toward
