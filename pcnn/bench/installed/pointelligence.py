"""pointelligence, the official code of PointCNN++: single layers over given triplets.

Its own search finds neighbours of native points within a ball, which voxels have others of; so it
is given the triplets of our map, sorted by slot as it sorts its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pcnn.bench.installed.peer import HALF_TOO, Peer, PeerLayer, PeerTensor, require_plain
from pcnn.geometry import VoxelGrid, grid_of_cells
from pcnn.interop import POINTELLIGENCE
from pcnn.nn import Conv3d, ConvTranspose3d
from pcnn.ops.engine import resolve
from pcnn.tensor import SparseTensor

Triplets = tuple[Tensor, Tensor, Tensor]


@dataclass(eq=False)
class Sites:
    """Voxels of ours, and triplets (i, j, k) by kernel.

    Args:
        grid: the voxels.
        triplets: int32, sorted by slot.
    """

    grid: VoxelGrid
    triplets: dict[Any, Triplets]
    count: None = None

    @property
    def rows(self) -> int:
        """See `pcnn.bench.installed.peer.PeerSites`."""
        return self.grid.rows

    def coords(self) -> Tensor:
        """See `pcnn.bench.installed.peer.PeerSites`."""
        return self.grid.coords


class Layer(PeerLayer):
    """A convolution of pointelligence at stride 1."""

    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> PeerTensor:
        """As `Conv3d`."""
        here: Any = x.geometry
        if self.kernel.key not in here.triplets:
            built = here.grid.kernel_map(here.grid, self.kernel, resolve("auto"))
            columns = built.out_index, built.in_index, built.slot_index
            here.triplets[self.kernel.key] = tuple(column.int() for column in columns)
        return PeerTensor(self.theirs(x.features, *here.triplets[self.kernel.key], here.rows), here)


@dataclass(frozen=True)
class Pointelligence:
    """The adapter.

    Args:
        name: of the package.
        layers: its module of layers.
    """

    name: str
    layers: Any
    reaches: bool = False
    keeps_strided_maps: bool = False
    builds_maps: bool = False
    dtypes: tuple[str, ...] = HALF_TOO

    def prepared(self, cells: Tensor, batches: int) -> VoxelGrid:
        """See `Peer.prepared`: cells in our order."""
        return grid_of_cells(cells[:, 1:].long(), cells[:, 0].long(), batches)

    def tensor(self, prepared: VoxelGrid, features: Tensor) -> PeerTensor:
        """See `Peer.tensor`: of layers alone, whose cells come in our order."""
        return PeerTensor(features, Sites(prepared, {}))

    def layer(self, ours: Conv3d | ConvTranspose3d) -> PeerLayer:
        """See `Peer.layer`."""
        require_plain(self, ours, groups=True)
        kernel = ours.kernel
        if isinstance(ours, ConvTranspose3d) or kernel.is_strided:
            raise ValueError(f"{self.name} is compared at stride 1: strided, it keeps points")
        words = {"groups": ours.groups, "bias": False}
        made = self.layers.PointConv3d(ours.in_channels, ours.out_channels, kernel.size, **words)
        return Layer(made, ours, POINTELLIGENCE)


def peer(name: str, engines: Any, layers: Any) -> Peer:
    """The adapter of a package of that name."""
    return Pointelligence(name, layers)
