"""Fewer sites: those that a mask keeps."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.geometry.base import holding_sites
from pcnn.geometry.checks import require_tensors
from pcnn.tensor import SparseTensor


def prune(x: SparseTensor, mask: Tensor) -> SparseTensor:
    """Keep the sites where a mask is true, with their features.

    The sites that stay are a geometry of their own, also where the mask keeps all: later layers
    build their levels and maps on it when they ask for them, and a plan of the input does not know
    it. Put layers behind it into a `PlannedModule` to have all of theirs built at once. The host
    waits for the device once, for the number of sites, so `pcnn.runtime.graph`, ``trainer.graph``
    and compiled code cannot hold this call.

    Args:
        x: features ``[N, C]`` on voxels or native points of any level; gradients flow to them.
        mask: ``[N]`` bool, in the order of the sites; no gradient flows to it.

    Returns:
        Features ``[M, C]`` of the M sites that stay, of the same tensor stride and clouds. They
        know no inverse to the points (`SparseTensor.at_points`).

    Raises:
        TypeError: a mask that is no tensor.
        ValueError: a mask of another shape, dtype or device.
        RuntimeError: the call is being compiled or captured in a CUDA graph.
    """
    require_tensors(mask=mask)
    if mask.shape != (len(x),) or mask.dtype != torch.bool or mask.device != x.device:
        raise ValueError(
            f"mask must be [{len(x)}] bool on {x.device}, one entry for each site, got "
            f"{list(mask.shape)} {str(mask.dtype).removeprefix('torch.')} on {mask.device}"
        )
    if torch.compiler.is_compiling() or (mask.is_cuda and torch.cuda.is_current_stream_capturing()):
        raise RuntimeError(
            "prune decides about sites while it runs, so it cannot be compiled or captured in a "
            "CUDA graph; run this network eagerly (trainer.graph=false), or keep all sites and "
            "multiply by the mask: x * mask[:, None]"
        )
    if x.geometry.count is not None:
        mask = mask & holding_sites(len(x), x.geometry.count)
    rows = mask.nonzero().squeeze(1)  # [M]
    return SparseTensor(x.features.index_select(0, rows), x.geometry.at_rows(rows))
