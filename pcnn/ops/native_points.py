"""From points with features to a sparse tensor on the points themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from pcnn.geometry import Neighbourhood, point_set_of
from pcnn.geometry.checks import as_tensor, check_features
from pcnn.tensor import SparseTensor


def native_points(
    points: Tensor | np.ndarray,
    features: Tensor | np.ndarray,
    batch: Tensor | np.ndarray | None = None,
    voxel_size: float | Sequence[float] = 1.0,
    *,
    batch_size: int | None = None,
    downsampling: str = "nearest",
    thin: float | Sequence[float] | None = None,
    neighbourhood: Neighbourhood | None = None,
) -> SparseTensor:
    """Put features on native points, each where it is (PointCNN++ 3.2); the other `voxelize`.

    Args:
        points: ``[P, 3]`` floating point coordinates [m]; float64 where they lie far from zero.
        features: ``[P, C]`` floating point; gradients flow to it.
        batch: ``[P]`` integers, cloud of every point; ``None`` means one cloud.
        voxel_size: edge of a cell of the finest level [m], one number or one per axis: the unit of
            kernels, as ``voxel_size`` is on voxels.
        batch_size: number of clouds; ``None`` means the largest batch index + 1.
        downsampling: points of strided convolutions: ``nearest`` (of every coarse cell the point
            nearest to its centre) or ``cell_origin`` (the cell's lowest corner, where all points of
            the finest level move too, as on voxels).
        thin: edge of a cell [m] of which only the point nearest to its centre is kept, with its own
            features; ``None`` keeps all points.
        neighbourhood: how kernels relate the points (reach, kernel cells, what becomes of
            neighbours outside the box); ``None`` means that of PointCNN++'s code.

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
    geometry = point_set_of(
        points, batch, batch_size, voxel_size, downsampling, thin, neighbourhood
    )
    assert geometry.chosen is not None
    return SparseTensor(features.index_select(0, geometry.chosen), geometry)
