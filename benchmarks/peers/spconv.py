"""spconv 2 and spconv-triton, which has the same interface.

Coordinates there are not negative and lie in a box. A coarse site belongs to the output if a kernel
reaches it. Submanifold maps are kept under a key for as long as the tensor lives, strided ones for
the inverse convolution only.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peers.base import BoxedSites, Convolution, Peer, PeerLayer, PeerTensor, strided
from pcnn.interop import SPCONV
from pcnn.nn import ConvTranspose3d
from pcnn.tensor import SparseTensor


class Layer(PeerLayer):
    def __init__(self, package: Any, theirs: Any, ours: Convolution) -> None:
        super().__init__(theirs, ours, SPCONV)
        self.package, self.inverse = package, isinstance(ours, ConvTranspose3d)

    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> PeerTensor:
        here: Any = x.geometry
        if self.inverse != (out is not None):
            raise ValueError("spconv is compared on inverse convolutions and on sites of its own")
        fine = here.stride if out is None else out.geometry.stride  # type: ignore[attr-defined]
        theirs: Any = self.theirs
        theirs.indice_key = f"{fine} {self.kernel.key}"
        given = self.package.SparseConvTensor(
            x.features, here.indices, here.shape, here.batches, indice_dict=here.maps
        )
        y = theirs(given)
        here.maps.update(y.indice_dict)
        target: Any = here
        if out is not None:
            target = out.geometry
        elif self.kernel.is_strided:
            stride = strided(here.stride, self.kernel)
            target = BoxedSites(y.indices, y.spatial_shape, here.batches, stride, here.maps)
        return PeerTensor(y.features, target)


class Spconv(Peer):
    reaches = True
    keeps_strided_maps = False

    def made(self, ours: Convolution) -> PeerLayer:
        kernel, channels = ours.kernel, (ours.in_channels, ours.out_channels)
        words: dict[str, Any] = {"bias": False, "large_kernel_fast_algo": True}
        if ours.weight.device.type == "cpu":
            words["algo"] = self.package.ConvAlgo.Native  # the one that a CPU has
        size = list(kernel.size)
        if isinstance(ours, ConvTranspose3d):
            made = self.package.SparseInverseConv3d(*channels, size, indice_key="", **words)
        elif kernel.is_strided:
            rest = map(list, (kernel.stride, kernel.padding, kernel.dilation))
            made = self.package.SparseConv3d(*channels, size, *rest, **words)
        elif kernel.is_symmetric:
            words["dilation"] = list(kernel.dilation)
            made = self.package.SubMConv3d(*channels, size, **words)
        else:
            raise ValueError(f"{self.name} has no even kernel at stride 1, got {kernel.size}")
        return Layer(self.package, made, ours)


peer = Spconv
