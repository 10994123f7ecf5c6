"""Tensors on different sites, brought together."""

from __future__ import annotations

from functools import reduce

import torch

from pcnn.geometry.find_sites import require_voxels
from pcnn.geometry.union import union_of
from pcnn.tensor import SparseTensor


def on_union(*tensors: SparseTensor) -> tuple[SparseTensor, ...]:
    """The same tensors on the sites that at least one of them has, 0 where a tensor has none.

    Operations on one geometry then work on them: `concatenate`, arithmetic, a maximum. A tensor
    that has all the sites comes back as it is. The host waits for the device once, and not if the
    tensors share their geometry.

    Args:
        *tensors: features on voxels of one tensor stride and of as many clouds.

    Raises:
        TypeError: native points.
        ValueError: no tensor, or sites that have no union (`pcnn.geometry.union.union_of`).
    """
    grids = [require_voxels(tensor.geometry, "on_union") for tensor in tensors]
    union, rows = union_of(grids)
    spread = []
    for tensor, own in zip(tensors, rows, strict=True):
        if tensor.geometry is not union:
            zeros = tensor.features.new_zeros(union.rows, tensor.channels)
            tensor = SparseTensor(zeros.index_copy(0, own, tensor.features), union)
        spread.append(tensor)
    return tuple(spread)


def union(*tensors: SparseTensor) -> SparseTensor:
    """Sum of tensors on different sites: each site adds up the tensors that have it.

    On one geometry it is the sum that `add` gives. The host waits as in `on_union`.

    Args:
        *tensors: features ``[N_t, C]`` on voxels of one tensor stride and of as many clouds.

    Returns:
        ``[N, C]`` on the union of the sites, in the dtype that torch gives a sum.

    Raises:
        TypeError: native points.
        ValueError: as `on_union`, or tensors of different numbers of channels.
    """
    channels = {tensor.channels for tensor in tensors}
    if len(channels) > 1:
        raise ValueError(f"the tensors of a sum need the same channels, got {sorted(channels)}")
    grids = [require_voxels(tensor.geometry, "union") for tensor in tensors]
    sites, rows = union_of(grids)
    dtype = reduce(torch.promote_types, [tensor.features.dtype for tensor in tensors])
    total = tensors[0].features.new_zeros(sites.rows, *channels, dtype=dtype)
    for tensor, own in zip(tensors, rows, strict=True):
        total = total.index_add_(0, own, tensor.features.to(dtype))
    return SparseTensor(total, sites)
