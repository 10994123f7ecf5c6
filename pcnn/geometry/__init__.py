"""Where features live: integer geometry of voxels and the layouts of kernel maps."""

from pcnn.geometry.kernel import Kernel
from pcnn.geometry.kernel_map import KernelMap
from pcnn.geometry.packing import KeyLayout
from pcnn.geometry.quantize import grid_of_cells, quantize
from pcnn.geometry.voxel_grid import VoxelGrid

__all__ = ["Kernel", "KernelMap", "KeyLayout", "VoxelGrid", "grid_of_cells", "quantize"]
