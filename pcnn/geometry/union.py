"""Sites of several voxel grids together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.geometry.voxel_grid import VoxelGrid, joint_box


def union_of(grids: Sequence[VoxelGrid]) -> tuple[VoxelGrid, list[Tensor]]:
    """Grid of the sites that at least one of some grids has; the host waits for the device once.

    A grid that holds the sites of all others is the union itself, with its levels and kernel maps;
    grids that are one object are their own union, and nothing is computed.
    """
    if not grids:
        raise ValueError("a union needs at least one voxel grid")
    first = grids[0]
    names = "batch_size", "tensor_stride", "downsampling", "key_format", "spatial_shape", "device"
    for position, grid in enumerate(grids):
        for name in names:
            own, wanted = getattr(grid, name), getattr(first, name)
            if own != wanted:
                raise ValueError(f"grid {position} has {name} {own}, grid 0 {wanted}")
        if grid.count is not None:
            raise ValueError(f"grid {position} has spare rows: its sites are not counted")
    if all(grid is first for grid in grids):
        return first, [torch.arange(first.rows, device=first.device)] * len(grids)
    every = torch.cat([grid.keys for grid in grids])
    keys, inverse = torch.unique(every, sorted=True, return_inverse=True)
    rows = list(inverse.split([grid.rows for grid in grids]))
    whole = next((grid for grid in grids if grid.rows == len(keys)), None)
    if whole is not None:
        return whole, rows
    union = VoxelGrid(
        keys,
        first.batch_size,
        max(grid.bound for grid in grids),
        first.tensor_stride,
        first.downsampling,
        key_format=first.key_format,
        box=joint_box([grid.extent for grid in grids]),
        spatial_shape=first.spatial_shape,
    )
    return union, rows
