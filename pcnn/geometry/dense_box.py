"""A box of cells, all of them there, and the sites of a voxel grid in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pcnn.geometry.kernel_slots import Triple, triple
from pcnn.geometry.quantize import grid_of_cells
from pcnn.geometry.voxel_grid import VoxelGrid

#: Smallest coordinate that is a number of 64 bits.
_LOWEST = -(1 << 63)


@dataclass(frozen=True)
class DenseBox:
    """Cells ``low + stride * (i, j, k)``, as many along every axis as ``shape`` says."""

    low: Triple  # coordinate of cell (0, 0, 0), in level-0 voxels
    shape: Triple  # number of cells along x, y and z
    stride: Triple  # tensor stride of the cells
    clouds: int  # number of clouds, each with a box of its own

    def __post_init__(self) -> None:
        if any(value % step for value, step in zip(self.low, self.stride, strict=True)):
            raise ValueError(
                f"min_coord must be a multiple of the tensor stride {self.stride}, in level-0 "
                f"voxels as coords are, got {self.low}"
            )

    @staticmethod
    def of(
        grid: VoxelGrid,
        shape: int | Sequence[int] | None = None,
        min_coord: int | Sequence[int] | None = None,
    ) -> DenseBox:
        """A box for the sites of a grid; the host waits for them where it is not given whole."""
        low = None if min_coord is None else triple(min_coord, "min_coord", _LOWEST)
        size = None if shape is None else triple(shape, "shape", 0)
        stride, clouds = grid.tensor_stride, grid.batch_size
        if low is not None and size is not None:
            return DenseBox(low, size, stride, clouds)
        sites = grid.coords[:, 1:] if grid.count is None else grid.coords[: int(grid.count), 1:]
        if not len(sites):
            return DenseBox(low or (0, 0, 0), size or (0, 0, 0), stride, clouds)
        least, most = torch.stack(sites.aminmax(dim=0)).tolist()
        x, y, z = low = low or triple(least, "min_coord", _LOWEST)
        u, v, w = most
        reach = (u - x) // stride[0] + 1, (v - y) // stride[1] + 1, (w - z) // stride[2] + 1
        return DenseBox(low, size or triple([max(0, r) for r in reach], "shape", 0), stride, clouds)

    def places(self, grid: VoxelGrid) -> tuple[list[Tensor], Tensor]:
        """Cloud, i, j and k of sites ``[N]`` int64, 0 outside; ``[N]`` bool, whether inside."""
        cloud, *axes = grid.coords.to(torch.int64).unbind(1)
        places, inside = [cloud], cloud < self.clouds
        # numbers of the host go into kernels: as a tensor they would be copied, which waits
        for site, low, step, cells in zip(axes, self.low, self.stride, self.shape, strict=True):
            place = torch.div(site - low, step, rounding_mode="floor")
            places.append(place)
            inside = inside & (place >= 0) & (place < cells)
        return [torch.where(inside, place, 0) for place in places], inside

    def fill(self, features: Tensor, grid: VoxelGrid) -> Tensor:
        """Features ``[N, C]`` of sites as ``[B, C, X, Y, Z]``, channels last in memory."""
        volume = features.new_zeros(self.clouds, *self.shape, features.shape[1])
        if volume.numel():
            x, y, z = self.shape
            (cloud, i, j, k), inside = self.places(grid)
            values = torch.where(inside[:, None], features, 0)  # sites outside add 0 to cell 0
            cells = ((cloud * x + i) * y + j) * z + k
            volume = volume.flatten(0, 3).index_add(0, cells, values).view(volume.shape)
        else:
            volume = volume + features[:0].sum()  # gradients of nothing, but gradients
        return volume.permute(0, 4, 1, 2, 3)

    def read(self, volume: Tensor, grid: VoxelGrid) -> Tensor:
        """Features ``[N, C]`` of sites in ``[B, C, X, Y, Z]``; 0 for those outside of the box."""
        if not volume.numel():
            return volume.new_zeros(grid.rows, volume.shape[1]) + volume.sum()
        places, inside = self.places(grid)
        values = volume.permute(0, 2, 3, 4, 1)[tuple(places)]  # [N, C]
        return torch.where(inside[:, None], values, 0)

    def occupied(self, volume: Tensor, downsampling: str = "floor") -> VoxelGrid:
        """Grid of the cells in ``[B, C, X, Y, Z]`` where some channel is not 0."""
        cloud, *places = (volume.detach() != 0).any(1).nonzero().unbind(1)
        axes = zip(places, self.stride, self.low, strict=True)
        cells = torch.stack([place * step + low for place, step, low in axes], dim=1)
        grid = grid_of_cells(cells, cloud, self.clouds, downsampling, self.stride)
        return replace(grid, inverse=None)
