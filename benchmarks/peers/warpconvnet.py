"""WarpConvNet: voxels by cloud, maps in a cache that its tensors hand on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers.base import Convolution, Peer, PeerLayer, PeerTensor, Triple, boxed, strided
from pcnn.interop import SlotsFirst
from pcnn.nn import ConvTranspose3d
from pcnn.tensor import SparseTensor

Prepared = tuple[Tensor, Tensor, Tensor | None]


@dataclass(eq=False)
class Sites:
    voxels: Any  # its tensor, of which only the sites count
    stride: Triple = (1, 1, 1)  # tensor stride
    # its cache of maps, once there is one; of all levels of one input
    shared: dict[str, Any] = field(default_factory=dict)
    count: None = None

    @property
    def rows(self) -> int:
        return len(self.voxels.coordinate_tensor)

    def coords(self) -> Tensor:
        found: Tensor = self.voxels.batch_indexed_coordinates
        return found * found.new_tensor((1, *self.stride))


class Layer(PeerLayer):
    def __init__(self, theirs: Any, ours: Convolution) -> None:
        super().__init__(theirs, ours, SlotsFirst("warpconvnet", "Apache-2.0"))

    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> PeerTensor:
        here: Any = x.geometry
        given = here.voxels.replace(batched_features=x.features, **here.shared)
        if out is not None:
            target: Any = out.geometry
            return PeerTensor(self.theirs(given, target.voxels).feature_tensor, target)
        y = self.theirs(given)
        if y.cache is not None:
            here.shared["_cache"] = y.cache
        target = here
        if self.kernel.is_strided:
            target = Sites(y, strided(here.stride, self.kernel), here.shared)
        return PeerTensor(y.feature_tensor, target)


class WarpConvNet(Peer):
    dtypes = ("float16", "bfloat16", "float32")

    def prepared(self, cells: Tensor, batches: int) -> Prepared:
        indices, _ = boxed(cells)
        order = None
        if not bool((indices[1:, 0] >= indices[:-1, 0]).all()):
            order = torch.argsort(indices[:, 0], stable=True)
            indices = indices[order]
        sizes = torch.bincount(indices[:, 0].long(), minlength=batches).cpu()
        ends = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).int()
        return indices[:, 1:].contiguous(), ends, order

    def tensor(self, prepared: Prepared, features: Tensor) -> PeerTensor:
        coords, ends, order = prepared
        if order is not None:
            features = features[order]
        return PeerTensor(features, Sites(self.package.Voxels(coords, features.detach(), ends)))

    def made(self, ours: Convolution) -> PeerLayer:
        self.require_centred(ours.kernel)
        kernel = ours.kernel
        made = self.modules[1].SparseConv3d(
            ours.in_channels,
            ours.out_channels,
            kernel.size,
            kernel.stride,
            kernel.dilation,
            bias=False,
            transposed=isinstance(ours, ConvTranspose3d),
        )
        return Layer(made, ours)


peer = WarpConvNet
