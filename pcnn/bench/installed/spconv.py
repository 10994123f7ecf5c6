"""spconv 2 and spconv-triton, which has the same interface.

Coordinates there are not negative and lie in a box. A coarse site belongs to the output if a kernel
reaches it. Submanifold maps are kept under a key for as long as the tensor lives, strided ones for
the inverse convolution only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pcnn.bench.installed.box import InBox, Sites
from pcnn.bench.installed.peer import HALF_TOO, Peer, PeerLayer, PeerTensor, require_plain, strided
from pcnn.interop import SPCONV
from pcnn.nn import Conv3d, ConvTranspose3d
from pcnn.tensor import SparseTensor


class Layer(PeerLayer):
    """A layer of spconv between tensors whose maps are kept by level and kernel."""

    def __init__(self, package: Any, theirs: Any, ours: Conv3d | ConvTranspose3d) -> None:
        super().__init__(theirs, ours, SPCONV)
        self.package, self.inverse = package, isinstance(ours, ConvTranspose3d)

    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> PeerTensor:
        """As `Conv3d`, and `ConvTranspose3d` with ``out``."""
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
            target = Sites(y.indices, y.spatial_shape, here.batches, stride, here.maps)
        return PeerTensor(y.features, target)


@dataclass(frozen=True)
class Spconv(InBox):
    """The adapter.

    Args:
        name: of the package.
        package: its module of layers.
    """

    name: str
    package: Any
    reaches: bool = True
    keeps_strided_maps: bool = False
    builds_maps: bool = True
    dtypes: tuple[str, ...] = HALF_TOO

    def layer(self, ours: Conv3d | ConvTranspose3d) -> PeerLayer:
        """See `Peer.layer`."""
        kernel, channels = ours.kernel, (ours.in_channels, ours.out_channels)
        words: dict[str, Any] = {"bias": False, "large_kernel_fast_algo": True}
        if ours.weight.device.type == "cpu":
            words["algo"] = self.package.ConvAlgo.Native  # the one that a CPU has
        require_plain(self, ours)
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


def peer(name: str, package: Any) -> Peer:
    """The adapter of a package of that name."""
    return Spconv(name, package)
