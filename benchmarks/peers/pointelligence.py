"""pointelligence, the official code of PointCNN++: single layers over given triplets.

Its own search finds neighbours of native points within a ball, which voxels have others of; so it
is given the triplets of our map, sorted by slot as it sorts its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from benchmarks.peers.base import Convolution, Peer, PeerLayer, PeerTensor
from pcnn.geometry import VoxelGrid, grid_of_cells
from pcnn.interop import SlotsFirst
from pcnn.nn import ConvTranspose3d
from pcnn.ops.engine import resolve
from pcnn.tensor import SparseTensor


@dataclass(eq=False)
class Sites:
    """Voxels of ours, and int32 triplets (i, j, k) by kernel, sorted by slot."""

    grid: VoxelGrid
    triplets: dict[Any, tuple[Tensor, ...]]
    count: None = None

    @property
    def rows(self) -> int:
        return self.grid.rows

    def coords(self) -> Tensor:
        return self.grid.coords


class Layer(PeerLayer):
    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> PeerTensor:
        here: Any = x.geometry
        if self.kernel.key not in here.triplets:
            built = here.grid.kernel_map(here.grid, self.kernel, resolve("auto"))
            columns = built.out_index, built.in_index, built.slot_index
            here.triplets[self.kernel.key] = tuple(column.int() for column in columns)
        return PeerTensor(self.theirs(x.features, *here.triplets[self.kernel.key], here.rows), here)


class Pointelligence(Peer):
    keeps_strided_maps = False
    builds_maps = False

    def prepared(self, cells: Tensor, batches: int) -> VoxelGrid:
        return grid_of_cells(cells[:, 1:].long(), cells[:, 0].long(), batches)

    def tensor(self, prepared: VoxelGrid, features: Tensor) -> PeerTensor:
        return PeerTensor(features, Sites(prepared, {}))

    def made(self, ours: Convolution) -> PeerLayer:
        kernel = ours.kernel
        if isinstance(ours, ConvTranspose3d) or kernel.is_strided:
            raise ValueError(f"{self.name} is compared at stride 1: strided, it keeps points")
        layer = self.modules[-1].PointConv3d
        made = layer(ours.in_channels, ours.out_channels, kernel.size, groups=1, bias=False)
        return Layer(made, ours, SlotsFirst("pointelligence", "Apache-2.0", grouped=True))


peer = Pointelligence
