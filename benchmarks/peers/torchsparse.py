"""TorchSparse 2.1, with its own choices: implicit GEMM, maps from a hash table made for each map.

Coordinates there are not negative and lie in a box. Its interface has a dilation without effect.
It knows no autocast: features are cast before they are given to it, and it casts the weights.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peers.base import BoxedSites, Convolution, Peer, PeerLayer, PeerTensor, strided
from pcnn.interop import TORCHSPARSE
from pcnn.nn import ConvTranspose3d
from pcnn.nn.conv import compute_dtype
from pcnn.tensor import SparseTensor


class Layer(PeerLayer):
    def __init__(self, package: Any, theirs: Any, ours: Convolution) -> None:
        super().__init__(theirs, ours, TORCHSPARSE)
        self.package, self.transposed = package, isinstance(ours, ConvTranspose3d)

    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> PeerTensor:
        here: Any = x.geometry
        if self.transposed != (out is not None):
            raise ValueError("TorchSparse is compared on sites of its own and on those of a skip")
        box = (here.batches, *here.shape)
        features = x.features.to(compute_dtype(x.features))
        given = self.package.SparseTensor(features, here.indices, here.stride, box)
        given._caches = here.maps.setdefault("caches", given._caches)
        y = self.theirs(given)
        target: Any = here
        if out is not None:
            target = out.geometry
        elif self.kernel.is_strided:
            stride, shape = strided(here.stride, self.kernel), list(y.spatial_range[1:])
            target = BoxedSites(y.coords, shape, here.batches, stride, here.maps)
        return PeerTensor(y.feats, target)


class TorchSparse(Peer):
    reaches = True

    def made(self, ours: Convolution) -> PeerLayer:
        kernel = ours.kernel
        if kernel.dilation != (1, 1, 1) or not (kernel.is_strided or kernel.is_symmetric):
            raise ValueError(f"{self.name} computes no such kernel as ours: {kernel}")
        made = self.modules[1].Conv3d(
            ours.in_channels,
            ours.out_channels,
            kernel.size,
            kernel.stride,
            kernel.padding,
            bias=False,
            transposed=isinstance(ours, ConvTranspose3d),
        )
        return Layer(self.package, made, ours)


peer = TorchSparse
