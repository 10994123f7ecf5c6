"""Pooling with spconv's arguments and sites."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pcnn.compat.spconv.core import ConvAlgo
from pcnn.compat.spconv.pytorch.core import IndiceData, SparseConvTensor
from pcnn.compat.spconv.pytorch.sparse_module import (
    Size,
    SparseModule,
    VoxelCount,
    expand_nd,
    get_conv_output_size,
    kernel_of,
    of_axes,
    require,
)
from pcnn.geometry import KernelMap
from pcnn.ops.engine import resolve
from pcnn.ops.reduce import reduce_max, reduce_mean

#: Slots up to which spconv takes its masked algorithm.
MOST_SLOTS = 128


class SparsePool(SparseModule):
    """Reduce the sites of every window; sites that are not there do not count."""

    def __init__(
        self,
        ndim: int,
        kernel_size: Size = 3,
        stride: Size | None = 1,
        padding: Size = 0,
        dilation: Size = 1,
        indice_key: str | None = None,
        subm: bool = False,
        algo: ConvAlgo | None = None,
        record_voxel_count: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.ndim, self.kernel_size = ndim, expand_nd(ndim, kernel_size)
        self.stride = expand_nd(ndim, self.kernel_size if stride is None else stride)
        self.padding, self.dilation = expand_nd(ndim, padding), expand_nd(ndim, dilation)
        self.indice_key, self.subm, self.record_voxel_count = indice_key, subm, record_voxel_count
        masked = math.prod(self.kernel_size) <= MOST_SLOTS
        usual = ConvAlgo.MaskImplicitGemm if masked else ConvAlgo.Native
        self.algo = usual if algo is None else algo
        self.engine = resolve(None)
        own = self.stride, self.padding
        if subm:
            sizes = zip(self.kernel_size, self.dilation, strict=True)
            own = [1] * ndim, [d * (k - 1) // 2 for k, d in sizes]
        self.kernel = kernel_of(self.kernel_size, *own, self.dilation)
        self.voxel_count = VoxelCount(self) if record_voxel_count and not subm else None

    def extra_repr(self) -> str:
        """Window, as in the constructor."""
        names = "kernel_size", "stride", "padding", "dilation", "algo"
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

    def get_max_num_voxels(self) -> Tensor | None:
        """``[1]`` int32, largest number of output sites so far; ``None``: not recorded."""
        return None if self.voxel_count is None else self.voxel_count.buffer

    def reduced(self, features: Tensor, kernel_map: KernelMap) -> Tensor:
        """The windows' ``[N_out, C]`` of features ``[N_in, C]``."""
        raise NotImplementedError

    # as of convolutions: compiled code leaves the layer as it is
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, input: SparseConvTensor) -> SparseConvTensor:
        """Pool ``[N_in, C]`` to ``[N_out, C]`` on the sites that the windows reach."""
        key, shape, source = self.indice_key, input.spatial_shape, input.sites
        require(key is None or key not in input.indice_dict, f"indice_key {key!r} is taken")
        require(len(shape) == self.ndim, f"the layer takes {self.ndim} axes, got {len(shape)}")
        target, out_shape = source, shape
        if not self.subm:
            own = self.kernel_size, self.stride, self.padding, self.dilation
            out_shape = get_conv_output_size(shape, *own)
            target = source.reached(self.kernel, out_shape)
        require(
            target.rows > 0 or source.rows == 0,
            f"no window of the volume {out_shape} holds one of the {source.rows} sites in {shape}; "
            "give a larger spatial_shape or padding",
        )
        kernel_map = source.map_to(target, self.kernel, self.engine)
        if self.voxel_count is not None:
            self.voxel_count.add(target.rows)
        kept = input.indice_dict
        if key is not None:
            own_lists = self.kernel_size, self.stride, self.padding, self.dilation
            places = kernel_map, source, target, self.subm, self.algo
            kept = {**kept, key: IndiceData(*places, *own_lists, shape, out_shape)}
        return input.on_sites(self.reduced(input.features, kernel_map), target, out_shape, kept)


class SparseMaxPool(SparsePool):
    """Maximum of 0 and the sites of a window, per channel, as spconv has it."""

    def reduced(self, features: Tensor, kernel_map: KernelMap) -> Tensor:
        """See `SparsePool.reduced`."""
        return reduce_max(features, kernel_map).clamp_min(0)


class SparseAvgPool(SparsePool):
    """Mean of the sites of a window."""

    def reduced(self, features: Tensor, kernel_map: KernelMap) -> Tensor:
        """See `SparsePool.reduced`."""
        return reduce_mean(features, kernel_map)


class SparseGlobalMaxOrAvgPool(SparseModule):
    """Reduce every cloud to one row ``[B, C]``; an empty cloud gives zeros."""

    def __init__(self, is_mean: bool, name: str | None = None) -> None:
        super().__init__(name=name)
        self.is_mean = is_mean

    def forward(self, input: SparseConvTensor) -> Tensor:
        """Pool ``[N, C]`` to ``[B, C]``."""
        rows, clouds = len(input.features), input.indices[:, 0]
        sites = torch.arange(rows, dtype=torch.int32, device=clouds.device)
        offsets = torch.tensor([0, rows])
        order = torch.argsort(clouds, stable=True)
        pairs = sites[order], clouds[order]
        members = KernelMap.from_pairs(*pairs, offsets, rows, input.batch_size, False, True)
        return (reduce_mean if self.is_mean else reduce_max)(input.features, members)


class SparseGlobalMaxPool(SparseGlobalMaxOrAvgPool):
    """Maximum over every cloud."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(False, name)


class SparseGlobalAvgPool(SparseGlobalMaxOrAvgPool):
    """Mean over every cloud."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(True, name)


_ORDER = ("kernel_size", "stride", "padding", "dilation", "indice_key", "algo")


def _made(base: type[SparsePool], axes: int) -> type[Any]:
    """The class of a number of axes; its stride is its size unless given."""
    order, name = (*_ORDER, "record_voxel_count", "name"), f"{base.__name__}{axes}d"
    return of_axes(__name__, name, base, axes, order, 1, stride=None)


SparseMaxPool1d, SparseMaxPool2d, SparseMaxPool3d = (_made(SparseMaxPool, n) for n in (1, 2, 3))
SparseAvgPool1d, SparseAvgPool2d, SparseAvgPool3d = (_made(SparseAvgPool, n) for n in (1, 2, 3))
