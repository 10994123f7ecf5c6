"""Pooling with spconv's arguments and sites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pcnn.compat.spconv.core import ConvAlgo
from pcnn.compat.spconv.pytorch.conv import WindowLayer, of_axes
from pcnn.compat.spconv.pytorch.core import SparseConvTensor, SparseModule
from pcnn.compat.spconv.pytorch.ops import Size, require
from pcnn.geometry import KernelMap
from pcnn.ops.reduce import reduce_max, reduce_mean


class SparsePool(WindowLayer):
    """Reduce the sites of every window; sites that are not there do not count."""

    reduction: Callable[[Tensor, KernelMap], Tensor]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        record_voxel_count: bool = False,
        name: str | None = None,
    ) -> None:
        window = kernel_size, kernel_size if stride is None else stride, padding, dilation, 0
        super().__init__(*window, indice_key, algo, record_voxel_count, name)

    # as of convolutions: compiled code leaves the layer as it is
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, input: SparseConvTensor) -> SparseConvTensor:
        """Pool ``[N_in, C]`` to ``[N_out, C]`` on the sites that the windows reach."""
        key, kept = self.indice_key, input.indice_dict
        require(key is None or key not in kept, f"indice_key {key!r} is taken")
        data = self.found(input)
        kept = kept if key is None else {**kept, key: data}
        rows = type(self).reduction(input.features, data.kernel_map)
        return input.on_sites(rows, data.target, data.out_spatial_shape, kept)


def _max_and_0(features: Tensor, kernel_map: KernelMap) -> Tensor:
    """Maximum of 0 and the sites of a window, per channel, as spconv has it."""
    return reduce_max(features, kernel_map).clamp_min(0)


SparseMaxPool1d, SparseMaxPool2d, SparseMaxPool3d = of_axes(
    SparsePool, "SparseMaxPool", reduction=staticmethod(_max_and_0)
)
SparseAvgPool1d, SparseAvgPool2d, SparseAvgPool3d = of_axes(
    SparsePool, "SparseAvgPool", reduction=staticmethod(reduce_mean)
)


class SparseGlobalMaxPool(SparseModule):
    """Maximum over every cloud."""

    reduction: Any = staticmethod(reduce_max)

    def forward(self, input: SparseConvTensor) -> Tensor:
        """Pool ``[N, C]`` to one row a cloud ``[B, C]``; an empty cloud gives zeros."""
        rows, clouds = len(input.features), input.indices[:, 0]
        sites = torch.arange(rows, dtype=torch.int32, device=clouds.device)
        offsets = torch.tensor([0, rows])
        order = torch.argsort(clouds, stable=True)
        pairs = sites[order], clouds[order]
        members = KernelMap.from_pairs(*pairs, offsets, rows, input.batch_size, False, True)
        pooled: Tensor = self.reduction(input.features, members)
        return pooled


class SparseGlobalAvgPool(SparseGlobalMaxPool):
    """Mean over every cloud."""

    reduction = staticmethod(reduce_mean)
