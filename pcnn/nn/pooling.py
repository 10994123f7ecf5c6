"""Pooling over kernel windows and over whole clouds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pcnn.geometry import Geometry, Kernel, KernelMap
from pcnn.nn.conv import Size
from pcnn.ops.engine import Engine, resolve
from pcnn.ops.reduce import reduce_max, reduce_mean
from pcnn.ops.sites import output_sites
from pcnn.tensor import SparseTensor, require_sparse


class _Pool3d(nn.Module):
    """Reduce the occupied sites of every window; empty sites do not count."""

    reduction: Callable[[Tensor, KernelMap], Tensor]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size | None = None,
        dilation: Size = 1,
        engine: str | Engine | None = None,
    ) -> None:
        super().__init__()
        steps = kernel_size if stride is None else stride
        self.kernel = Kernel.of(kernel_size, steps, dilation, padding)
        self.engine = resolve(engine)

    def forward(self, x: SparseTensor, out: Geometry | None = None) -> SparseTensor:
        """Pool ``[N_in, C]`` to ``[N_out, C]`` on the strided sites, or on those given."""
        if type(x) is not SparseTensor:
            require_sparse(x, self)
        if self.kernel.is_pointwise and (out is None or out is x.geometry):
            return x  # native points of one cell do not count for each other here either
        if out is None:
            out = output_sites(x.geometry, self.kernel)
        kernel_map = x.geometry.kernel_map(out, self.kernel, self.engine)
        return SparseTensor(type(self).reduction(x.features, kernel_map), out)


class MaxPool3d(_Pool3d):
    """Maximum over the occupied sites of a window; 0 where there is none."""

    reduction = staticmethod(reduce_max)


class AvgPool3d(_Pool3d):
    """Mean over the occupied sites of a window; 0 where there is none."""

    reduction = staticmethod(reduce_mean)


class _GlobalPool(nn.Module):
    """Reduce every cloud to one row ``[B, C]``; an empty cloud gives zeros."""

    reduction: Callable[[Tensor, KernelMap], Tensor]

    def forward(self, x: SparseTensor) -> Tensor:
        """Pool ``[N, C]`` to ``[B, C]``."""
        if type(x) is not SparseTensor:
            require_sparse(x, self)
        grid = x.geometry
        sites = torch.arange(grid.rows, device=grid.device, dtype=torch.int32)
        clouds, many = grid.batch_index.to(torch.int32), grid.batch_size
        if grid.count is not None:  # rows without a site are those of one cloud more
            clouds, many = clouds.clamp_(max=many), many + 1
        offsets = torch.tensor([0, grid.rows])
        members = KernelMap.from_pairs(sites, clouds, offsets, grid.rows, many, False, True)
        return type(self).reduction(x.features, members)[: grid.batch_size]


class GlobalMaxPool(_GlobalPool):
    """Maximum over every cloud."""

    reduction = staticmethod(reduce_max)


class GlobalAvgPool(_GlobalPool):
    """Mean over every cloud."""

    reduction = staticmethod(reduce_mean)
