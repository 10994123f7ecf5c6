"""Downsampling of native points: one point in every coarse cell.

PointCNN++ 4.1 downsamples by cells and does not snap points to their centres; its authors' code
keeps the point nearest to the centre.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pcnn.geometry.kernel_slots import Triple

if TYPE_CHECKING:
    from pcnn.geometry.point_set import PointSet


def coarser(fine: PointSet, stride: Triple) -> PointSet:
    """One point in every coarse cell; see `PointSet.strided`."""
    cells = fine.cells.to(torch.int64)
    step = torch.tensor(stride, device=fine.device)
    cells[:, 1:] = torch.div(cells[:, 1:], step, rounding_mode="floor")
    keys, inverse = torch.unique(fine.key_format.pack(cells), sorted=True, return_inverse=True)
    coarse = level_of(fine, stride, fine.points.new_empty(keys.shape[0], 3), keys, inverse, None)
    if fine.downsampling == "cell_origin":
        return replace(coarse, points=in_cells(coarse, 0.0).to(torch.float32))
    offsets = fine.points.to(torch.float64) - in_cells(coarse, 0.5)[inverse]
    chosen = nearest_rows(offsets, inverse, coarse.rows)
    return replace(coarse, points=fine.points[chosen], chosen=chosen)


def level_of(
    fine: PointSet,
    stride: Triple,
    points: Tensor,  # [N, 3] float32, in the frames of the finer level
    keys: Tensor,  # [N] int64 coarse cells, sorted
    inverse: Tensor,  # [N_fine] int64 coarse row of every fine one
    chosen: Tensor | None,  # [N] int64, which of the fine rows every coarse one is, if it is one
) -> PointSet:
    """The set of one point a coarse cell."""
    (x, y, z), (a, b, c) = fine.tensor_stride, stride
    return replace(
        fine,
        points=points,
        keys=keys,
        voxel_size=coarse_size(fine, stride),
        tensor_stride=(x * a, y * b, z * c),
        one_per_cell=True,
        inverse=inverse,
        chosen=chosen,
        finer=fine.inverses(),
    )


def coarse_size(fine: PointSet, stride: Triple) -> tuple[float, float, float]:
    """Edges of the cells of a coarser level [m]."""
    (x, y, z), (a, b, c) = fine.voxel_size, stride
    return x * a, y * b, z * c


def in_cells(points: PointSet, share: float) -> Tensor:
    """``[N, 3]`` float64: a place in the cell of every row,
    relative to the origins of the clouds.
    """
    size = torch.tensor(points.voxel_size, dtype=torch.float64, device=points.device)
    start = (points.corners - points.origins)[points.batch_index]
    return (points.cells[:, 1:].to(torch.float64) + share) * size + start


def nearest_rows(offsets: Tensor, cell: Tensor, cells: int) -> Tensor:
    """Row of the point nearest to the centre of every cell; of equally near ones the lowest.

    Distances are sums of squares in the order x, y, z, one rounding an operation, so that every
    device and every run chooses the same rows. Nothing waits for the device.
    """
    x, y, z = (offsets * offsets).unbind(1)
    distance = x + y + z
    least = torch.full((cells,), torch.inf, dtype=distance.dtype, device=distance.device)
    least.scatter_reduce_(0, cell, distance, "amin")
    n = cell.shape[0]
    rows = torch.arange(n, device=cell.device)
    rows = torch.where(distance == least[cell], rows, n)
    return torch.full((cells,), n, device=cell.device).scatter_reduce_(0, cell, rows, "amin")
