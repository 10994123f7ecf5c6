"""Triplets of native points, found apart from the engines.

Up to `EVERY_PAIR` pairs of points every one is looked at; larger clouds take the search in torch,
which stands apart from the kernels of a GPU. Slots are computed anew from the offsets.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcnn.bench import oracle
from pcnn.bench.oracle import Pair
from pcnn.geometry import Geometry, Kernel, PointSet, VoxelGrid, grid_of_cells
from pcnn.maps.radius_pairs import radius_pairs

#: Pairs of points among which neighbours are found by looking at all of them.
EVERY_PAIR = 4 * 10**9
#: Pairs looked at together.
CHUNK = 1 << 25


def triplets(source: Geometry, target: Geometry, kernel: Kernel) -> list[Pair]:
    """Rows (j, i) of every slot of a convolution on voxels, cell corners or native points.

    Args:
        source: input sites.
        target: output sites.
        kernel: on native points odd and cubic, with the usual padding.
    """
    if isinstance(source, VoxelGrid) and isinstance(target, VoxelGrid):
        return oracle.triplets(source, target, kernel)
    assert isinstance(source, PointSet)
    assert isinstance(target, PointSet)
    if source.downsampling == "cell_origin":
        return oracle.triplets(_voxels(source), _voxels(target), kernel)
    centres, reach = target.points_about(source), radius(source, kernel)
    if source.rows * target.rows <= EVERY_PAIR:
        i, j = every_pair(source.points, centres, reach)
    else:
        i, j = radius_pairs(source.points, None, centres, None, reach)
    slot = slots(source.points[j] - centres[i], source.grid_size[0], kernel)
    order = slot.argsort(stable=True)
    sizes = torch.bincount(slot, minlength=kernel.volume).tolist()
    return list(zip(j[order].split(sizes), i[order].split(sizes), strict=True))


def radius(source: PointSet, kernel: Kernel) -> float:
    """Radius of the ball that has the volume of the kernel's box [m]."""
    (size, *others), (edge, *edges) = kernel.size, source.grid_size
    if {size, *others} != {size} or {edge, *edges} != {edge} or not size % 2:
        raise ValueError(f"the kernel must be odd and cubic, over cubic cells, got {kernel}")
    if source.batch_size != 1:
        raise ValueError(f"the source must hold one cloud, got {source.batch_size}")
    # in this order of operations: the last bit of R decides about points on the boundary
    return float(edge * (3 * size**3 / (4 * math.pi)) ** (1 / 3))


def every_pair(points: Tensor, centres: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """Rows (i, j) of all pairs within reach, boundary included, by looking at every pair.

    Args:
        points: ``[N, 3]`` float32.
        centres: ``[M, 3]`` float32.
        reach: radius R; compared in float32, the sum of squares added x, y, z.
    """
    limit = torch.tensor(reach * reach, dtype=torch.float32, device=points.device)
    rows = max(1, CHUNK // max(1, len(points)))
    found = [torch.zeros(0, 2, dtype=torch.int64, device=points.device)]
    for start in range(0, len(centres), rows):
        squares = [
            (centres[start : start + rows, axis, None] - points[None, :, axis]).square_()
            for axis in range(3)
        ]
        near = ((squares[0] + squares[1]) + squares[2] <= limit).nonzero()
        found.append(near + torch.tensor([start, 0], device=near.device))
    both = torch.cat(found)
    return both[:, 0], both[:, 1]


def slots(offsets: Tensor, edge: float, kernel: Kernel) -> Tensor:
    """Slot ``[T]`` of offsets ``[T, 3]``: cells rounded half away from zero, clamped to the box."""
    cell = offsets / torch.tensor(edge, dtype=torch.float32, device=offsets.device)
    wide = cell.to(torch.float64)  # where adding a half is exact
    whole = torch.sign(wide) * torch.floor(wide.abs() + 0.5)
    half = kernel.size[0] // 2
    x, y, z = (whole.clamp(-half, half) + half).to(torch.int64).unbind(1)
    return (x * kernel.size[0] + y) * kernel.size[0] + z


def _voxels(points: PointSet) -> VoxelGrid:
    """Voxels of the cells of points, one in each; rows in the same order."""
    cells = points.cells.to(torch.int64)
    voxels = grid_of_cells(cells[:, 1:], cells[:, 0], points.batch_size)
    if voxels.rows != points.rows:
        raise ValueError(f"{points.rows} points lie in {voxels.rows} cells; give one per cell")
    return voxels
