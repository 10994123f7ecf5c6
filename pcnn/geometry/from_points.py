"""From float points to a point set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pcnn.geometry.checks import check_finite, check_points, clouds_of, voxel_sizes
from pcnn.geometry.packing import HALF, pack
from pcnn.geometry.point_set import PointSet, Sizes, nearest_rows

#: Origins are multiples of so many cells, rounded up to a power of two [m].
_ORIGIN_CELLS = 1024
#: Cells from zero within which float64 coordinates have digits left inside a cell.
_EXACT_CELLS = 2.0**48


def point_set_of(
    points: Tensor,  # [P, 3] floating point coordinates [m]
    batch: Tensor | None = None,  # [P] integers, cloud of every point; None means one cloud
    batch_size: int | None = None,
    voxel_size: float | Sequence[float] = 1.0,
    thin: float | Sequence[float] | None = None,
    memory: float | None = None,  # most that kernel maps may take [GB]
) -> PointSet:
    """Point set of points, each kept where it is, sorted by the cell ``floor(p / voxel_size)``.

    Every cloud is centred in float64 before its points are rounded to float32. Origins are
    multiples of a power of two, at least 1024 cells: a cloud around zero has origin 0 and keeps its
    float32 points as they are, and differences of float32 points stay what they were. Cells are
    counted from zero, as voxels are, unless the cloud's centre lies beyond a quarter of what a
    packed key holds; then from a multiple of that. The host waits for the device twice.
    """
    check_points(points, batch)
    sizes = voxel_sizes(voxel_size, "voxel_size")
    if memory is not None and not 0 < memory < math.inf:
        raise ValueError(f"memory must be positive [GB] or none, got {memory}")
    if thin is None:
        return _sorted(points, batch, batch_size, sizes, memory)
    every = _sorted(points, batch, batch_size, voxel_sizes(thin, "thin"), memory)
    keys, cell = torch.unique_consecutive(every.keys, return_inverse=True)
    offsets = every.points.to(torch.float64) - every.centres
    rows = nearest_rows(offsets, cell, len(keys))  # of every
    assert every.chosen is not None
    assert every.inverse is not None
    kept_points = every.chosen[rows]  # [kept] of the input
    clouds = every.batch_index[rows], every.batch_size
    few = _sorted(points[kept_points], *clouds, sizes, memory)
    assert few.chosen is not None
    assert few.inverse is not None
    inverse = few.inverse[cell][every.inverse]
    return replace(few, inverse=inverse, chosen=kept_points[few.chosen])


def _sorted(
    points: Tensor,
    batch: Tensor | None,
    batch_size: int | None,
    sizes: Sizes,
    memory: float | None,
) -> PointSet:
    device = points.device
    if batch is None:
        batch = torch.zeros(len(points), dtype=torch.int64, device=device)
    batch = batch.to(torch.int64)
    first, last = 0, 0 if batch_size is None else -1
    if len(points):
        finite = torch.isfinite(points).all().to(torch.int64)
        whole, first, last = torch.stack([finite, *batch.aminmax()]).tolist()
        if not whole:
            check_finite(points)  # says which
    clouds = clouds_of(first, last, batch_size)
    exact = points.to(torch.float64)
    middle = _middles(exact, batch, clouds)  # [B, 3]
    unit = 2.0 ** math.ceil(math.log2(_ORIGIN_CELLS * max(sizes)))
    origins = torch.round(middle / unit) * unit
    size = torch.tensor(sizes, dtype=torch.float64, device=device)
    quarter = HALF // 2  # of what an axis holds
    first_cell = torch.round(middle / size / quarter) * quarter  # [B, 3] float64, whole numbers
    from_zero = torch.floor(exact / size)
    cells = from_zero - first_cell[batch]
    coords = torch.cat([batch[:, None], cells.to(torch.int64)], dim=1)
    keys, order = torch.sort(pack(coords), stable=True)
    repeated = _checked(from_zero, cells, keys)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=device)
    return PointSet(
        (exact - origins[batch])[order].to(torch.float32),
        origins,
        first_cell * size,
        keys,
        clouds,
        sizes,
        one_per_cell=not repeated,
        inverse=inverse,
        chosen=order,
        memory=memory,
    )


def _middles(points: Tensor, batch: Tensor, clouds: int) -> Tensor:
    """``[B, 3]`` float64 middle of the box of every cloud; 0 of an empty one."""
    index = batch[:, None].expand(-1, 3)
    box = points.new_full((2, clouds, 3), torch.inf)
    box[0].scatter_reduce_(0, index, points, "amin")
    box[1].scatter_reduce_(0, index, -points, "amin")
    middle = (box[0] - box[1]) / 2
    return torch.where(torch.isfinite(middle), middle, 0.0)


def _checked(whole: Tensor, cells: Tensor, keys: Tensor) -> bool:
    """True if some cell holds two points; refuses cells that keys do not hold, in one wait."""
    # whole cells are counted from zero, cells from the corner of their cloud
    if not len(keys):
        return False
    flags = torch.stack([(keys[1:] == keys[:-1]).any().to(torch.float64), whole.abs().amax()])
    numbers = torch.cat([cells.amin(0), cells.amax(0), flags]).tolist()
    if not numbers[7] < _EXACT_CELLS:
        raise ValueError(
            f"point set: coordinates lie {numbers[7]:.3g} cells from zero, where float64 tells "
            "cells no longer apart; subtract an offset"
        )
    for name, low, high in zip("xyz", numbers[:3], numbers[3:6], strict=True):
        if max(high, -low) >= HALF:
            raise ValueError(
                f"point set: cells lie at {low:.0f}..{high:.0f} along {name} about the middle of "
                f"their cloud, but a packed key holds {1 - HALF}..{HALF - 1}"
            )
    return bool(numbers[6])
