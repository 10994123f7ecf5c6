"""Where features live: voxels, native points, and the layouts of kernel maps."""

from pcnn.geometry.base import Geometry
from pcnn.geometry.kernel_map import KernelMap
from pcnn.geometry.kernel_slots import Kernel
from pcnn.geometry.point_set import PointSet, point_set_of
from pcnn.geometry.quantize import grid_of_cells, quantize
from pcnn.geometry.voxel_grid import VoxelGrid

__all__ = [
    "Geometry",
    "Kernel",
    "KernelMap",
    "PointSet",
    "VoxelGrid",
    "grid_of_cells",
    "point_set_of",
    "quantize",
]
