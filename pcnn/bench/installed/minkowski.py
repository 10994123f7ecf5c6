"""MinkowskiEngine 0.5: float32, maps kept by a manager for as long as a tensor lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pcnn.bench.installed.peer import (
    Peer,
    PeerLayer,
    PeerTensor,
    require_centred,
    require_plain,
    strided,
)
from pcnn.geometry.kernel_slots import Triple
from pcnn.interop import MINKOWSKI
from pcnn.nn import Conv3d, ConvTranspose3d
from pcnn.tensor import SparseTensor


@dataclass(eq=False)
class Sites:
    """Sites of a tensor of MinkowskiEngine.

    Args:
        key: of the coordinates.
        manager: holds coordinates and maps.
        rows: number of sites N.
        stride: tensor stride.
    """

    key: Any
    manager: Any
    rows: int
    stride: Triple = (1, 1, 1)
    count: None = None

    def coords(self) -> Tensor:
        """See `pcnn.bench.installed.peer.PeerSites`."""
        found: Tensor = self.manager.get_coordinates(self.key)
        return found


class Layer(PeerLayer):
    """A layer of MinkowskiEngine between tensors of one manager."""

    def __init__(self, package: Any, theirs: Any, ours: Conv3d | ConvTranspose3d) -> None:
        super().__init__(theirs, ours, MINKOWSKI)
        self.package = package

    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> PeerTensor:
        """As `Conv3d` and `ConvTranspose3d`."""
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


@dataclass(frozen=True)
class Minkowski:
    """The adapter.

    Args:
        name: of the package.
        package: it.
    """

    name: str
    package: Any
    reaches: bool = False
    keeps_strided_maps: bool = True
    builds_maps: bool = True
    dtypes: tuple[str, ...] = ("float32",)

    def prepared(self, cells: Tensor, batches: int) -> Tensor:
        """See `Peer.prepared`."""
        return cells.int().contiguous()

    def tensor(self, prepared: Tensor, features: Tensor) -> PeerTensor:
        """See `Peer.tensor`: its coordinates are distinct, so rows stay where they are."""
        x = self.package.SparseTensor(features, coordinates=prepared)
        sites = Sites(x.coordinate_map_key, x.coordinate_manager, len(prepared))
        return PeerTensor(features, sites)

    def layer(self, ours: Conv3d | ConvTranspose3d) -> PeerLayer:
        """See `Peer.layer`."""
        require_plain(self, ours)
        require_centred(self, ours.kernel)
        transposed = isinstance(ours, ConvTranspose3d)
        made = (
            self.package.MinkowskiConvolutionTranspose
            if transposed
            else (self.package.MinkowskiConvolution)
        )
        kernel = ours.kernel
        theirs = made(
            ours.in_channels,
            ours.out_channels,
            kernel_size=list(kernel.size),
            stride=list(kernel.stride),
            dilation=list(kernel.dilation),
            bias=False,
            dimension=3,
        )
        return Layer(self.package, theirs, ours)


def peer(name: str, package: Any) -> Peer:
    """The adapter of a package of that name."""
    return Minkowski(name, package)
