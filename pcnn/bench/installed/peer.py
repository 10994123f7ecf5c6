"""The interface of an adapter of another package, and networks of ours rebuilt of its layers.

A network keeps its own modules: blocks, norms and activations run as they are written, and each
convolution is the package's own layer. So all packages do the same work around their convolutions.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pcnn.bench.place import Params
from pcnn.geometry import Kernel
from pcnn.geometry.kernel_slots import Triple
from pcnn.interop import WeightLayout
from pcnn.nn import Conv3d, ConvTranspose3d
from pcnn.nn.planned import PlannedModule
from pcnn.ops.engine import Engine
from pcnn.tensor import SparseTensor

#: Dtypes of most packages; none of them computes as torch's switch for TF32 says.
HALF_TOO = ("float16", "float32")


class PeerSites(Protocol):
    """Sites of a package's tensor; two tensors with one such object have the same rows."""

    #: rows that there are: all, so none are counted
    count: None

    @property
    def rows(self) -> int:
        """Number of sites N."""

    def coords(self) -> Tensor:
        """``[N, 4]`` (batch, x, y, z) in level-0 voxels, row by row as the package keeps them."""


class PeerTensor(SparseTensor):
    """Features on the sites of another package, which blocks of ours take as a sparse tensor."""

    def __init__(self, features: Tensor, geometry: Any) -> None:
        # written past the frozen base, whose geometries are ours
        self.__dict__.update(features=features, geometry=geometry)

    def replace(self, features: Tensor) -> PeerTensor:
        """See `SparseTensor.replace`."""
        return PeerTensor(features, self.geometry)


class PeerLayer(nn.Module):
    """A convolution of another package.

    Args:
        theirs: its layer, without bias.
        ours: what it is made of; its weight is written into ``theirs``.
        layout: of its weight.
    """

    def __init__(
        self, theirs: nn.Module, ours: Conv3d | ConvTranspose3d, layout: WeightLayout
    ) -> None:
        super().__init__()
        self.theirs, self.layout = theirs, layout
        self.kernel, self.groups = ours.kernel, ours.groups
        weight = layout.from_ours(ours.weight.detach(), ours.kernel, ours.groups)
        setattr(theirs, layout.parameter, nn.Parameter(weight))

    @property
    def weight(self) -> Tensor:
        """The weight, as the package keeps it."""
        found = getattr(self.theirs, self.layout.parameter)
        assert isinstance(found, Tensor)
        return found

    def in_ours(self, weight: Tensor) -> Tensor:
        """A weight of the package, or its gradient, as ours ``[K, C_in / groups, C_out]``."""
        return self.layout.to_ours(weight, self.kernel, self.groups)


class Peer(Protocol):
    """A package that is measured beside ours."""

    @property
    def name(self) -> str:
        """As rows and ``--engine`` name it."""

    @property
    def reaches(self) -> bool:
        """Whether strided layers keep every site that a kernel reaches, not those of ``floor``."""

    @property
    def keeps_strided_maps(self) -> bool:
        """Whether a strided layer that is called twice on a tensor finds its map again."""

    @property
    def builds_maps(self) -> bool:
        """Whether it finds the triplets of voxels itself; else it is given ours."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Names of the dtypes that it computes in."""

    def prepared(self, cells: Tensor, batches: int) -> Any:
        """Cells ``[P, 4]`` int32 (batch, x, y, z) as the package wants them; not measured."""

    def tensor(self, prepared: Any, features: Tensor) -> PeerTensor:
        """A tensor without maps, of what `prepared` has returned and features ``[P, C]``."""

    def layer(self, ours: Conv3d | ConvTranspose3d) -> PeerLayer:
        """The package's layer with the weight of one of ours.

        Raises:
            ValueError: it has no such layer.
        """


#: An engine of ours or a package, and the settings that tell its rows from others'.
PeerEntry = tuple[Engine | Peer, Params]


def rebuilt(network: nn.Module, peer: Peer) -> nn.Module:
    """A copy of a network whose convolutions are a package's, with the same weights.

    Raises:
        ValueError: the package has no such layer, or keeps other sites.
    """
    made = copy.deepcopy(network)
    for name, layer in list(made.named_modules()):
        if isinstance(layer, Conv3d | ConvTranspose3d):
            parent, _, own = name.rpartition(".")
            setattr(made.get_submodule(parent), own, peer.layer(layer))
    if isinstance(made, PlannedModule):
        made.plans_input = False
    return made


def require_sites(peer: Peer, kernel: Kernel, downsampling: str) -> None:
    """Refuse a strided kernel to which a package gives other output sites than we do.

    Raises:
        ValueError: it keeps every site that the kernel reaches, or those of ``floor``.
    """
    wider = any(k > s for k, s in zip(kernel.size, kernel.stride, strict=True))
    if kernel.is_strided and wider and peer.reaches != (downsampling == "reached"):
        theirs = "reached" if peer.reaches else "floor"
        raise ValueError(
            f"a kernel of size {kernel.size} and stride {kernel.stride} has other output sites in "
            f"{peer.name}; compare it with --sites {theirs}"
        )


def require_dtype(peer: Peer, dtype: str) -> None:
    """Refuse a dtype that a package does not compute in.

    Raises:
        ValueError: it does not.
    """
    if dtype not in peer.dtypes:
        raise ValueError(
            f"{peer.name} is compared in {' and '.join(peer.dtypes)}, not in {dtype}; give --dtype"
        )


def require_centred(peer: Peer, kernel: Kernel) -> None:
    """Refuse a kernel with another padding than that of packages which know none.

    Raises:
        ValueError: an odd size that is not centred on its site, or an even one that does not begin
            there.
    """
    centred = (
        p == (d * (k // 2) if k % 2 else 0)
        for k, d, p in zip(kernel.size, kernel.dilation, kernel.padding, strict=True)
    )
    if not all(centred):
        raise ValueError(
            f"{peer.name} centres odd kernels and begins even ones at their site, a kernel of size "
            f"{kernel.size} has padding {kernel.padding}"
        )


def require_plain(peer: Peer, ours: Conv3d | ConvTranspose3d, groups: bool = False) -> None:
    """Refuse layers with a bias, and with groups unless a package has them.

    Raises:
        ValueError: such a layer.
    """
    if ours.bias is not None or (ours.groups > 1 and not groups):
        raise ValueError(f"{peer.name} is compared without biases and groups of channels")


def in_our_order(coords: Tensor) -> Tensor:
    """Rows ``[N]`` of coordinates ``[N, 4]``, sorted by (batch, x, y, z) as ours are."""
    coords = coords.long()
    low = coords.amin(0) if len(coords) else coords.new_zeros(4)
    key = coords.new_zeros(len(coords))
    for axis, first in zip(coords.unbind(1), low.unbind(), strict=True):
        key = (key << 18) + (axis - first)  # as far as packed keys reach
    return torch.argsort(key)


def strided(stride: Triple, kernel: Kernel) -> Triple:
    """Tensor stride behind a strided kernel."""
    x, y, z = (t * s for t, s in zip(stride, kernel.stride, strict=True))
    return x, y, z
