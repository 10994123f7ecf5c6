"""From the geometries of single clouds to that of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from pcnn.geometry import Geometry, PointSet, VoxelGrid


def joined(geometries: Sequence[Geometry]) -> Geometry:
    """One geometry of several single clouds, at least one, in their order.

    Raises:
        ValueError: some lie on voxels, others on native points.
    """
    points = [g for g in geometries if isinstance(g, PointSet)]
    voxels = [g for g in geometries if isinstance(g, VoxelGrid)]
    if points and voxels:
        raise ValueError(
            f"{len(voxels)} samples of a batch lie on voxels, {len(points)} on native points; "
            "give all samples one geometry"
        )
    return PointSet.collate(points) if points else VoxelGrid.collate(voxels)
