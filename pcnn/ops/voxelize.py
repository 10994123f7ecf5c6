"""From points with features to a sparse tensor, on voxels or on the points themselves."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pcnn.geometry import Geometry, KernelMap, VoxelGrid, grid_of_cells, point_set_of, quantize
from pcnn.geometry.checks import (
    as_tensor,
    check_batch,
    check_cells,
    check_features,
    check_finite,
    check_on_stride,
    check_points,
    voxel_sizes,
)
from pcnn.geometry.kernel_slots import Triple, triple
from pcnn.geometry.packing import HALF, MAX_BATCH
from pcnn.kernels import cuda
from pcnn.maps.base import has_kernels
from pcnn.ops.device_plan import DevicePlan
from pcnn.ops.plan import Planner
from pcnn.ops.recipe import Recipe
from pcnn.ops.reduce import BY_NAME
from pcnn.tensor import SparseTensor

_THREADS = 256

#: Ways to reduce the points of a voxel, in the order of the constants in ``csrc/voxelize.cu``.
REDUCTIONS = ("mean", "sum", "first")

#: Dtypes that features are summed in as they are.
_SUMMED = torch.float32, torch.float64
#: Channels that the host reduces one after the other; more take longer so than row by row.
_FEW = 6


def voxelize(
    points: Tensor | np.ndarray,
    features: Tensor | np.ndarray,
    batch: Tensor | np.ndarray | None = None,
    *,
    voxel_size: float | Sequence[float],
    reduce: str = "mean",
    batch_size: int | None = None,
    downsampling: str = "floor",
    planner: Planner | None = None,
) -> SparseTensor:
    """Quantise points to voxels ``floor(p / voxel_size)`` and reduce the features of each voxel.

    Args:
        points: ``[P, 3]`` floating point coordinates [m].
        features: ``[P, C]`` floating point; gradients flow to it.
        batch: ``[P]`` integers, cloud of every point; ``None`` means one cloud.
        voxel_size: edge of a voxel [m], one number or one per axis.
        reduce: points of one voxel are averaged (``mean``), added (``sum``), give the largest value
            of every channel (``max``; its gradient goes to the first point that has it), or the one
            that comes first in the input represents them (``first``).
        batch_size: number of clouds; ``None`` means the largest batch index + 1.
        downsampling: output sites of strided convolutions, ``floor`` or ``reached``.
        planner: of the network that the tensor will enter: its levels and kernel maps are built in
            the same go.

    Returns:
        A tensor whose rows are sorted by (batch, x, y, z); ``geometry.inverse`` ``[P]`` holds the
        row of every point.

    Raises:
        TypeError: points, features or batch that are neither tensors nor arrays.
        ValueError: as `pcnn.geometry.quantize`, or features that do not match the points.
    """
    points, features = as_tensor(points, "points"), as_tensor(features, "features")
    batch = None if batch is None else as_tensor(batch, "batch")
    check_features(features, len(points))
    grid = _quantized(points, batch, voxel_size, batch_size, downsampling, planner)
    return SparseTensor(reduce_points(features, grid, reduce), grid)


def from_coordinates(
    cells: Tensor | np.ndarray,
    features: Tensor | np.ndarray,
    batch: Tensor | np.ndarray | None = None,
    *,
    reduce: str = "mean",
    batch_size: int | None = None,
    downsampling: str = "floor",
    tensor_stride: int | Sequence[int] = 1,
) -> SparseTensor:
    """Bring integer cells and their features into the order of a voxel grid.

    Args:
        cells: ``[P, 3]`` whole numbers (x, y, z) in any order, in level-0 voxels; or ``[P, 4]``
            (batch, x, y, z) without a ``batch``, as ``coords`` of a tensor has them.
        features: ``[P, C]`` floating point, row p belongs to cell p; gradients flow to it.
        batch: ``[P]`` integers, cloud of every cell; ``None`` means one cloud.
        reduce: rows of a cell that is given several times; as in `voxelize`.
        batch_size: number of clouds; ``None`` means the largest batch index + 1.
        downsampling: output sites of strided convolutions, ``floor`` or ``reached``.
        tensor_stride: spacing of the cells, one number or one per axis; they are multiples of it.

    Returns:
        A tensor whose rows are sorted by (batch, x, y, z); ``at_points()`` gives them in the order
        of the cells.

    Raises:
        TypeError: cells, features or batch that are neither tensors nor arrays.
        ValueError: as `pcnn.geometry.grid_of_cells`, or features that do not match the cells.
    """
    cells, features = as_tensor(cells, "cells"), as_tensor(features, "features")
    batch = None if batch is None else as_tensor(batch, "batch")
    if batch is None and cells.ndim == 2 and cells.shape[1] == 4:
        batch, cells = cells[:, 0], cells[:, 1:]
    stride = triple(tensor_stride, "tensor_stride", 1)
    if has_kernels(cells.device):
        grid = _sorted(_narrow_cells(cells, batch, stride), batch_size, downsampling, stride)
    else:
        grid = grid_of_cells(cells, batch, batch_size, downsampling, stride)
    return SparseTensor(reduce_points(features, grid, reduce), grid)


def native_points(
    points: Tensor | np.ndarray,
    features: Tensor | np.ndarray,
    batch: Tensor | np.ndarray | None = None,
    voxel_size: float | Sequence[float] = 1.0,
    *,
    batch_size: int | None = None,
    thin: float | Sequence[float] | None = None,
    memory: float | None = None,
) -> SparseTensor:
    """Put features on native points, each where it is (PointCNN++ 3.2); the other `voxelize`.

    Args:
        points: ``[P, 3]`` floating point coordinates [m]; float64 where they lie far from zero.
        features: ``[P, C]`` floating point; gradients flow to it.
        batch: ``[P]`` integers, cloud of every point; ``None`` means one cloud.
        voxel_size: edge of a cell of the finest level [m], one number or one per axis: the unit of
            kernels, as ``voxel_size`` is on voxels.
        batch_size: number of clouds; ``None`` means the largest batch index + 1.
        thin: edge of a cell [m] of which only the point nearest to its centre is kept, with its own
            features; ``None`` keeps all points.
        memory: most memory that kernel maps may take [GB]; ``None``: what the device allows.

    Returns:
        A tensor whose rows are sorted by (batch, cell x, y, z), points of one cell in the order
        they came; ``geometry.inverse`` ``[P]`` holds the row of every point.

    Raises:
        TypeError: points, features or batch that are neither tensors nor arrays.
        ValueError: as `pcnn.geometry.point_set_of`, or features that do not match the points.
    """
    points, features = as_tensor(points, "points"), as_tensor(features, "features")
    batch = None if batch is None else as_tensor(batch, "batch")
    check_features(features, len(points))
    geometry = point_set_of(points, batch, batch_size, voxel_size, thin, memory)
    assert geometry.chosen is not None
    return SparseTensor(features.index_select(0, geometry.chosen), geometry)


def _quantized(
    points: Tensor,
    batch: Tensor | None,
    voxel_size: float | Sequence[float],
    batch_size: int | None,
    downsampling: str,
    planner: Planner | None,
) -> VoxelGrid:
    """Voxel grid of points, planned for a network if a planner is given."""
    if not has_kernels(points.device):
        grid = quantize(
            points, batch, voxel_size=voxel_size, batch_size=batch_size, downsampling=downsampling
        )
        return grid if planner is None else planner(grid)
    check_points(points, batch)
    cells = cells_of_points(points, batch, voxel_sizes(voxel_size))
    try:
        if planner is None:
            return _sorted(cells, batch_size, downsampling)
        return planner.voxelize(cells, batch_size, downsampling=downsampling)
    except ValueError as error:
        refused = error
    check_finite(points)  # such a point falls nowhere: name it rather than its cell
    raise refused


def _sorted(
    cells: Tensor,  # [P, 4] int32 (batch, x, y, z)
    batch_size: int | None,
    downsampling: str,
    stride: Triple = (1, 1, 1),
) -> VoxelGrid:
    grid: VoxelGrid = _sort(stride, downsampling).exact(cells, batch_size, False)[0][0]
    return grid


@functools.cache  # it knows how many passes the last cloud took
def _sort(stride: Triple, downsampling: str) -> DevicePlan:
    return DevicePlan(Recipe((), ()), stride, downsampling)


def _narrow_cells(cells: Tensor, batch: Tensor | None, stride: Triple) -> Tensor:
    """``[P, 4]`` int32 (batch, x, y, z) of whole numbers; what no key holds still does not fit."""
    check_cells(cells)
    check_on_stride(cells, stride)
    narrow = torch.zeros(len(cells), 4, dtype=torch.int32, device=cells.device)
    narrow[:, 1:] = _clamped(cells, -HALF - 1, HALF)
    if batch is not None:
        check_batch(batch, len(cells))
        narrow[:, 0] = _clamped(batch, -1, MAX_BATCH)
    return narrow


def _clamped(numbers: Tensor, low: int, high: int) -> Tensor:
    if numbers.dtype.itemsize < 4:
        return numbers
    whole = numbers.is_floating_point() or numbers.dtype is torch.int32
    return (numbers if whole else numbers.to(torch.int64)).clamp(low, high)


def reduce_points(features: Tensor, grid: Geometry, reduce: str = "mean") -> Tensor:
    """Reduce features ``[P, C]`` of points to the sites of any level made from them ``[N, C]``."""
    known = *REDUCTIONS, "max"
    if reduce not in known:
        raise ValueError(f"reduce must be one of {', '.join(known)}, got {reduce!r}")
    rows = grid.point_rows()  # [P]
    check_features(features, len(rows))
    many, out = features.shape[0], grid.rows
    followed = torch.is_grad_enabled() and features.requires_grad
    narrow = features.dtype.itemsize <= 4
    order = grid.order if isinstance(grid, VoxelGrid) else None
    if order is not None and narrow and not followed and reduce in REDUCTIONS:
        return reduce_by_row(features, order, rows, out, reduce)
    few = features.shape[1] <= _FEW and features.dtype in _SUMMED and not followed
    if few and features.device.type == "cpu" and reduce in ("mean", "sum"):
        return _reduced_columns(features, rows, out, reduce == "mean")
    if reduce == "first":
        return features.index_select(0, grid.unique_index())
    points = torch.arange(many, device=features.device, dtype=torch.int32)
    pairs = points, rows.to(torch.int32), torch.tensor([0, many])
    membership = KernelMap.from_pairs(*pairs, many, out, False, True)  # one slot
    return BY_NAME[reduce](features, membership)


def _reduced_columns(features: Tensor, rows: Tensor, n: int, mean: bool) -> Tensor:
    """The same on the host, without gradients: channel by channel, in the order of the points."""
    # numpy transposes few channels in a fifth of the time
    columns = torch.from_numpy(np.ascontiguousarray(features.detach().numpy().T))  # [C, P]
    if mean:
        counts = columns.new_zeros(n).index_add_(0, rows, columns.new_ones(len(rows)))
        columns = columns * counts.clamp_(min=1).reciprocal_().index_select(0, rows)
    out = columns.new_zeros(len(columns), n)
    out.scatter_add_(1, rows.expand(len(columns), -1), columns)
    return torch.from_numpy(np.array(out.numpy().T, order="C"))


def cells_of_points(points: Tensor, batch: Tensor | None, size: Sequence[float]) -> Tensor:
    """Cells ``floor(p / size)`` of points, ``[P, 4]`` int32 (batch, x, y, z)."""
    wide = points.dtype == torch.float64
    points = points.contiguous() if wide else points.to(torch.float32).contiguous()
    clouds = None if batch is None else batch.to(torch.int32).contiguous()
    n, device = points.shape[0], points.device
    cells = torch.empty(n, 4, dtype=torch.int32, device=device)
    given = None if wide else points, points if wide else None, clouds, cells, n, size
    cuda.module("voxelize.cu", device).launch("cells_of_points", -(-n // _THREADS), *given)
    return cells


def reduce_by_row(
    features: Tensor,  # [P, C] of 32 bits or fewer
    order: Tensor,  # [P] int32, points by row
    rows: Tensor,  # [P] int64, row of every point
    n_out: int,
    reduction: str,
    count: Tensor | None = None,  # [1] int32 on the device, points that count; None: all of them
) -> Tensor:
    """Mean, sum or first of the features of every row's points,
    summed in the order of the input.
    """
    values = features.to(torch.float32).contiguous()
    (n, channels), device = values.shape, values.device
    out = torch.zeros(n_out, channels, dtype=torch.float32, device=device)
    kind, blocks = REDUCTIONS.index(reduction), -(-n * channels // _THREADS)
    given = values, order, rows, count, out, n, channels, kind
    cuda.module("voxelize.cu", device).launch("reduce_points", blocks, *given)
    return out.to(features.dtype)
