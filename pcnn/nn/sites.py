"""Tensors on other sites: those that a mask keeps, or several tensors have."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.geometry.base import holding_sites
from pcnn.geometry.checks import require_tensors
from pcnn.geometry.sites import require_voxels, union_of
from pcnn.tensor import SparseTensor


def prune(x: SparseTensor, mask: Tensor) -> SparseTensor:
    """Keep the sites where a mask is true, with their features.

    The sites that stay are a geometry of their own, also where the mask keeps all; a plan of the
    input does not know it. Put layers behind it into a `PlannedModule` to have all of theirs built
    at once. The host waits for the device once, so CUDA graphs cannot hold this call.

    Args:
        x: features ``[N, C]`` on voxels or native points of any level; gradients flow to them.
        mask: ``[N]`` bool, in the order of the sites; no gradient flows to it.

    Returns:
        Features ``[M, C]`` of the M sites that stay, of the same tensor stride and clouds. They
        know no inverse to the points (`SparseTensor.at_points`).

    Raises:
        TypeError: a mask that is no tensor.
        ValueError: a mask of another shape, dtype or device.
        RuntimeError: the call is being captured in a CUDA graph.
    """
    require_tensors(mask=mask)
    if mask.shape != (len(x),) or mask.dtype != torch.bool or mask.device != x.device:
        raise ValueError(
            f"mask must be [{len(x)}] bool on {x.device}, one entry for each site, got "
            f"{list(mask.shape)} {str(mask.dtype).removeprefix('torch.')} on {mask.device}"
        )
    if mask.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "prune decides about sites while it runs, so it cannot be captured in a CUDA graph; "
            "keep all sites and multiply by the mask: x * mask[:, None]"
        )
    if x.geometry.count is not None:
        mask = mask & holding_sites(len(x), x.geometry.count)
    rows = mask.nonzero().squeeze(1)  # [M]
    return SparseTensor(x.features.index_select(0, rows), x.geometry.at_rows(rows))


def align(*tensors: SparseTensor) -> tuple[SparseTensor, ...]:
    """The same tensors on the sites that at least one of them has, 0 where a tensor has none.

    Operations on one geometry then work on them: `cat`, arithmetic, a maximum. A tensor
    that has all the sites comes back as it is. The host waits for the device once, and not if the
    tensors share their geometry.

    Args:
        *tensors: features on voxels of one tensor stride and of as many clouds.

    Raises:
        TypeError: native points.
        ValueError: no tensor, or sites that have no union (`pcnn.geometry.sites.union_of`).
    """
    grids = [require_voxels(tensor.geometry, "align") for tensor in tensors]
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

    On one geometry it is the sum that `add` gives. The host waits as in `align`.

    Args:
        *tensors: features ``[N_t, C]`` on voxels of one tensor stride and of as many clouds.

    Returns:
        ``[N, C]`` on the union of the sites, in the dtype that torch gives a sum.

    Raises:
        TypeError: native points.
        ValueError: as `align`, or tensors of different numbers of channels.
    """
    channels = {tensor.channels for tensor in tensors}
    if len(channels) > 1:
        raise ValueError(f"the tensors of a sum need the same channels, got {sorted(channels)}")
    total, *others = align(*tensors)
    return sum(others, start=total)
