"""From rows of clouds to their sites: the way back of global pooling."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

from pcnn.geometry import Geometry
from pcnn.geometry.checks import require_tensors
from pcnn.nn.pooling import cloud_map
from pcnn.ops.reduce import reduce_sum
from pcnn.tensor import SparseTensor


def broadcast(values: Tensor, geometry: Geometry) -> SparseTensor:
    """Give every site the row of its cloud; nothing waits for the device.

    ``x * broadcast(gates, x.geometry)`` scales each cloud, ``+`` shifts it, and `concatenate` joins
    the rows to its features. The gradient of a row is the sum over the sites of its cloud, in
    float32 also for half precision (in float64 for float64).

    Args:
        values: ``[B, C]`` floating point, a row for every cloud, as global pooling gives them.
        geometry: voxels or native points of B clouds.

    Returns:
        ``[N, C]`` in the dtype of the values; 0 in rows without a site (`Geometry.count`).

    Raises:
        TypeError: values that are no tensor.
        ValueError: values of another shape, or on another device than the geometry.
    """
    require_tensors(values=values)
    clouds = geometry.batch_size
    if values.ndim != 2 or len(values) != clouds:
        raise ValueError(
            f"values must be [{clouds}, C], a row for every cloud, got {tuple(values.shape)}"
        )
    if values.device != geometry.device:
        raise ValueError(f"values are on {values.device}, the geometry on {geometry.device}")
    if geometry.count is not None:
        values = pad(values, (0, 0, 0, 1))  # of the spare rows
    return SparseTensor(reduce_sum(values, cloud_map(geometry).transpose()), geometry)
