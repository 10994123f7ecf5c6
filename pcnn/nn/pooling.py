"""Pooling over kernel windows and over whole clouds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pcnn.geometry import Geometry, Kernel, KernelMap
from pcnn.nn.conv import Size
from pcnn.ops.engine import Engine, resolve
from pcnn.ops.reduce import reduce_max, reduce_mean, reduce_sum
from pcnn.ops.sites import output_sites
from pcnn.tensor import SparseTensor, require_sparse


class _Pool3d(nn.Module):
    """Reduce the occupied sites of every window; empty sites do not count.

    Windows of a size of at least their stride, undilated, count every occupied site of the input;
    those whose size equals their stride tile space and count it once.
    """

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


def unpool(x: SparseTensor, out: Geometry, engine: str | Engine | None = None) -> SparseTensor:
    """Copy the features of every coarse site to the finer sites inside its cell, 0 beside them.

    Args:
        x: features ``[N_in, C]`` on the coarser geometry.
        out: finer sites, of a tensor stride that divides that of ``x`` on every axis.
        engine: whose map builder finds the coarse site above a fine one.

    Raises:
        ValueError: tensor strides that do not divide, or native points that ``x`` was not made
            from.
    """
    if out is x.geometry:
        return x
    coarse, fine = x.geometry.tensor_stride, out.tensor_stride
    if any(c % f for c, f in zip(coarse, fine, strict=True)):
        raise ValueError(f"tensor stride {fine} of the sites does not divide {coarse} of x")
    ratio = [c // f for c, f in zip(coarse, fine, strict=True)]
    if out.maps_by_builder and max(ratio) == 1:
        # a kernel of one cell would be searched for, and sum up all points within its reach
        raise ValueError(
            f"both sets of native points have tensor stride {fine}, so neither lies inside the "
            "other's cells; give the points that those of x were made from"
        )
    kernel = Kernel.of(ratio, ratio)
    kernel_map = out.kernel_map(x.geometry, kernel, resolve(engine))
    return SparseTensor(reduce_sum(x.features, kernel_map.transpose()), out)
