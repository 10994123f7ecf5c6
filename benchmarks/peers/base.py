"""What an adapter of another package is made of, and networks of ours rebuilt of its layers.

A network keeps its own modules: blocks, norms and activations run as they are written, and each
convolution is the package's own layer. So all packages do the same work around their convolutions.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.geometry import Kernel
from pcnn.interop import WeightLayout
from pcnn.nn import Conv3d, ConvTranspose3d
from pcnn.nn.planned import PlannedModule
from pcnn.tensor import SparseTensor

Triple = tuple[int, int, int]
Convolution = Conv3d | ConvTranspose3d

#: Dtypes of most packages; none of them computes as torch's switch for TF32 says.
HALF_TOO = ("float16", "float32")
#: Cells of a box are a multiple of this, as far as networks halve the resolution, and a layer
#: of that many cells is left free: a site that a kernel reaches beyond the box would be dropped.
STEP = 16


class PeerTensor(SparseTensor):
    """Features on the sites of another package, which blocks of ours take as a sparse tensor."""

    def __init__(self, features: Tensor, geometry: Any) -> None:
        # written past the frozen base, whose geometries are ours
        self.__dict__.update(features=features, geometry=geometry)

    def replace(self, features: Tensor) -> PeerTensor:
        return PeerTensor(features, self.geometry)


class PeerLayer(nn.Module):
    def __init__(self, theirs: nn.Module, ours: Convolution, layout: WeightLayout) -> None:
        super().__init__()
        self.theirs, self.layout = theirs, layout
        self.kernel = ours.kernel
        weight = layout.from_ours(ours.weight.detach(), ours.kernel)
        setattr(theirs, layout.parameter, nn.Parameter(weight))

    @property
    def weight(self) -> Tensor:
        found: Tensor = getattr(self.theirs, self.layout.parameter)
        return found

    def in_ours(self, weight: Tensor) -> Tensor:
        return self.layout.to_ours(weight, self.kernel)


class Peer(ABC):
    # whether strided layers keep every site that a kernel reaches, not those of `floor`
    reaches = False
    # whether a strided layer called twice on a tensor finds its map again
    keeps_strided_maps = True
    builds_maps = True  # whether it finds the triplets of voxels itself; else it is given ours
    dtypes: tuple[str, ...] = HALF_TOO  # names of the dtypes that it computes in

    def __init__(self, name: str, *modules: Any) -> None:
        self.name, self.modules = name, modules
        self.package = modules[0]

    def prepared(self, cells: Tensor, batches: int) -> Any:
        """Cells ``[P, 4]`` int32 (batch, x, y, z) as the package wants them; not measured."""
        return (*boxed(cells), batches)

    def tensor(self, prepared: Any, features: Tensor) -> PeerTensor:
        """A tensor without maps, of what `prepared` has returned and features ``[P, C]``."""
        return PeerTensor(features, BoxedSites(*prepared))

    def layer(self, ours: Convolution) -> PeerLayer:
        """The package's layer with the weight of one of ours; ValueError if it has none."""
        if ours.bias is not None or ours.groups > 1:
            raise ValueError(f"{self.name} is compared without biases and groups of channels")
        return self.made(ours)

    @abstractmethod
    def made(self, ours: Convolution) -> PeerLayer:
        """The layer of one that it can have."""

    def require(self, dtype: str) -> None:
        """Refuse a dtype that the package does not compute in."""
        if dtype not in self.dtypes:
            raise ValueError(f"{self.name} computes in {', '.join(self.dtypes)}, not in {dtype}")

    def require_sites(self, kernel: Kernel, downsampling: str) -> None:
        """Refuse a strided kernel to which the package gives other output sites than we do."""
        wider = any(k > s for k, s in zip(kernel.size, kernel.stride, strict=True))
        if kernel.is_strided and wider and self.reaches != (downsampling == "reached"):
            sites = "reached" if self.reaches else "floor"
            raise ValueError(f"{self.name} has other output sites; give --sites {sites}")


@dataclass(eq=False)
class BoxedSites:
    """Sites of packages whose coordinates lie in a box and count in units of their own voxels."""

    indices: Tensor  # `[N, 4]` int32 (batch, x, y, z) in these units
    shape: list[int]  # of the box
    batches: int  # number of clouds
    stride: Triple = (1, 1, 1)  # tensor stride
    maps: dict[Any, Any] = field(default_factory=dict)  # by key, of all levels of one input
    count: None = None

    @property
    def rows(self) -> int:
        return self.indices.shape[0]

    def coords(self) -> Tensor:
        return self.indices * self.indices.new_tensor((1, *self.stride))


def boxed(cells: Tensor) -> tuple[Tensor, list[int]]:
    """Cells ``[P, 4]`` moved by a multiple of `STEP` so that none is negative, and their box."""
    low = torch.div(cells[:, 1:].amin(0), STEP, rounding_mode="floor") * STEP
    indices = torch.cat([cells[:, :1], cells[:, 1:] - low], 1).int().contiguous()
    high = indices[:, 1:].amax(0).tolist()
    return indices, [(int(last) // STEP + 2) * STEP for last in high]


def rebuilt(network: nn.Module, peer: Peer) -> nn.Module:
    """A copy of a network whose convolutions are a package's, with the same weights."""
    made = copy.deepcopy(network)
    for name, layer in list(made.named_modules()):
        if isinstance(layer, Conv3d | ConvTranspose3d):
            parent, _, own = name.rpartition(".")
            setattr(made.get_submodule(parent), own, peer.layer(layer))
    if isinstance(made, PlannedModule):
        made.plans_input = False
    return made


def in_our_order(coords: Tensor) -> Tensor:
    """Rows ``[N]`` of coordinates ``[N, 4]``, sorted by (batch, x, y, z) as ours are."""
    coords = coords.long()
    low = coords.amin(0) if len(coords) else coords.new_zeros(4)
    key = coords.new_zeros(len(coords))
    for axis, first in zip(coords.unbind(1), low.unbind(), strict=True):
        key = (key << 18) + (axis - first)  # as far as packed keys reach
    return torch.argsort(key)


def strided(stride: Triple, kernel: Kernel) -> Triple:
    x, y, z = (t * s for t, s in zip(stride, kernel.stride, strict=True))
    return x, y, z
