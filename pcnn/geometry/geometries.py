"""The kinds of geometries a sparse tensor may live on."""

from __future__ import annotations

from typing import TypeAlias

from pcnn.geometry.point_set import PointSet
from pcnn.geometry.voxel_grid import VoxelGrid

Geometry: TypeAlias = VoxelGrid | PointSet
