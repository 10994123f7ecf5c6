"""MinkowskiEngine 0.5: float32, maps kept by a manager for as long as a tensor lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from benchmarks.peers.base import Convolution, Peer, PeerLayer, PeerTensor, Triple, strided
from pcnn.interop import MINKOWSKI
from pcnn.nn import ConvTranspose3d
from pcnn.tensor import SparseTensor


@dataclass(eq=False)
class Sites:
    """Sites of a tensor: the key of its coordinates in a manager, their number and stride."""

    key: Any
    manager: Any
    rows: int
    stride: Triple = (1, 1, 1)
    count: None = None

    def coords(self) -> Tensor:
        found: Tensor = self.manager.get_coordinates(self.key)
        return found


class Layer(PeerLayer):
    def __init__(self, package: Any, theirs: Any, ours: Convolution) -> None:
        super().__init__(theirs, ours, MINKOWSKI)
        self.package = package

    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> PeerTensor:
        here: Any = x.geometry
        given = self.package.SparseTensor(
            x.features, coordinate_map_key=here.key, coordinate_manager=here.manager
        )
        if out is not None:
            target: Any = out.geometry
            return PeerTensor(self.theirs(given, target.key).F, target)
        y = self.theirs(given)
        target = here
        if self.kernel.is_strided:
            stride = strided(here.stride, self.kernel)
            target = Sites(y.coordinate_map_key, here.manager, len(y.F), stride)
        return PeerTensor(y.F, target)


class Minkowski(Peer):
    dtypes = ("float32",)

    def prepared(self, cells: Tensor, batches: int) -> Tensor:
        return cells.int().contiguous()

    def tensor(self, prepared: Tensor, features: Tensor) -> PeerTensor:
        x = self.package.SparseTensor(features, coordinates=prepared)
        sites = Sites(x.coordinate_map_key, x.coordinate_manager, len(prepared))
        return PeerTensor(features, sites)

    def made(self, ours: Convolution) -> PeerLayer:
        self.require_centred(ours.kernel)
        turned = isinstance(ours, ConvTranspose3d)
        name = f"MinkowskiConvolution{'Transpose' if turned else ''}"
        kernel = ours.kernel
        theirs = getattr(self.package, name)(
            ours.in_channels,
            ours.out_channels,
            kernel_size=list(kernel.size),
            stride=list(kernel.stride),
            dilation=list(kernel.dilation),
            bias=False,
            dimension=3,
        )
        return Layer(self.package, theirs, ours)


peer = Minkowski
