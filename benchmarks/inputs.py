"""Inputs of networks: shuffled cells, points, and cells as other packages want them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peers.base import Peer, PeerTensor
from benchmarks.workloads import Cloud
from pcnn.geometry import VoxelGrid
from pcnn.ops import native_points, voxelize
from pcnn.tensor import SparseTensor

CHANNELS = 4  # input channels of all networks


class Input:
    features: Tensor  # `[P, C]`

    @property
    def sites(self) -> int:
        return len(self.features)

    def to(self, dtype: torch.dtype) -> Any:
        return replace(self, features=self.features.to(dtype))  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Cells(Input):
    """Shuffled cells and their features, as a reader delivers them."""

    cells: Tensor  # `[P, 4]` int32 (batch, x, y, z), distinct, in no order
    features: Tensor  # `[P, 4]`
    batches: int  # number of clouds
    downsampling: str = "floor"  # sites of strided layers, `floor` or `reached`
    geometry = "voxel"

    @classmethod
    def of(cls, grid: VoxelGrid, device: torch.device, batches: int = 1) -> Cells:
        coords = grid.coords.to(device)
        cells = torch.cat([coords + coords.new_tensor([b, 0, 0, 0]) for b in range(batches)])
        order = torch.randperm(len(cells), generator=torch.Generator().manual_seed(0))
        random = torch.Generator(device).manual_seed(1)
        features = torch.randn(len(cells), CHANNELS, generator=random, device=device)
        shuffled = cells[order.to(device)].contiguous()
        return cls(shuffled, features, grid.batch_size * batches, grid.downsampling)

    @property
    def as_points(self) -> tuple[tuple[Any, ...], float]:
        """Arguments of a graph that begins at points, and its voxel size: centres of cells."""
        batch = self.cells[:, 0] if self.batches > 1 else None
        return (self.cells[:, 1:].float() + 0.5, self.features, batch, self.batches), 1.0

    def on(self, network: Any, backward: bool) -> SparseTensor:
        """Input of a network: cells sorted and planned, features in the order of the sites."""
        grid = network.planner.voxelize(
            self.cells, self.batches, downsampling=self.downsampling, backward=backward
        )
        rows = torch.empty_like(self.features)
        rows.index_copy_(0, grid.inverse, self.features)
        return SparseTensor(rows, grid)


@dataclass(frozen=True, eq=False)
class Points(Input):
    """Clouds with features, as a reader delivers them."""

    points: Tensor  # `[P, 3]` float32 [m]
    features: Tensor  # `[P, 4]`
    voxel_size: float  # edge of a cell [m]
    geometry: str  # `voxel`; or `native`, points as they are
    batch: Tensor | None = None  # `[P]` int32, cloud of every point; `None`: one cloud
    batches: int = 1  # number of clouds

    @classmethod
    def of(cls, cloud: Cloud, geometry: str) -> Points:
        device = cloud.points.device
        random = torch.Generator(device).manual_seed(1)
        features = torch.randn(len(cloud.points), CHANNELS, generator=random, device=device)
        return cls(cloud.points, features, cloud.voxel_size, geometry)

    @property
    def as_points(self) -> tuple[tuple[Any, ...], float]:
        return (self.points, self.features, self.batch, self.batches), self.voxel_size

    def on(self, network: Any, backward: bool) -> SparseTensor:
        """Input of a network: points sorted into sites, and planned; on voxels in one go."""
        x = tensor_on(self, network.planner)
        network.planner(x.geometry, backward)
        return x


def tensor_on(cloud: Points, planner: Any = None) -> SparseTensor:
    """Features of points on their geometry; on voxels planned in the same go."""
    given = cloud.points, cloud.features, cloud.batch
    words: dict[str, Any] = {"batch_size": cloud.batches}
    if cloud.geometry == "voxel":
        return voxelize(*given, voxel_size=cloud.voxel_size, planner=planner, **words)
    return native_points(*given, voxel_size=cloud.voxel_size, **words)


@dataclass(frozen=True, eq=False)
class PeerCells(Input):
    """Cells and features as a package wants them, of what it has made of the cells."""

    peer: Peer
    prepared: Any
    features: Tensor

    def on(self, network: nn.Module, backward: bool) -> PeerTensor:
        """A tensor without maps, whatever the network: its layers build them."""
        return self.peer.tensor(self.prepared, self.features)
