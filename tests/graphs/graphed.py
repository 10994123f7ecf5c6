"""Small networks and clouds for steps in memory of fixed size, and a capture that runs again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.dataflows.gemm import OutputStationary
from pcnn.geometry import grid_of_cells
from pcnn.graphs.capture import Work
from pcnn.maps import SortedSearch, Windowed
from pcnn.models.minkunet import MinkUNet42
from pcnn.nn import (
    AvgPool3d,
    Conv3d,
    ConvTranspose3d,
    FeatureWise,
    GlobalMaxPool,
    MaxPool3d,
    PlannedModule,
)
from pcnn.ops import Engine, native_points, resolve
from pcnn.tensor import SparseTensor
from tests.clouds import surface

#: The layouts of a GPU, in torch operations: on voxels, and on native points.
TILES = Engine("tiles", SortedSearch(), OutputStationary())
ROWS = replace(resolve("auto"), name="rows", dataflow=OutputStationary())
#: Maps by the kernels of a GPU, which an emulator runs.
KERNELS = Engine("kernels", Windowed(), OutputStationary())


def rerun(work: Work) -> Work:
    """A capture for devices without graphs: the function itself, on the memory it was given."""
    return work


def network(norm: Callable[[int], nn.Module] = nn.BatchNorm1d, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return MinkUNet42(2, 3, 0.125, TILES, norm=norm)


class Pools(PlannedModule):
    """On native points: kernels that tile space, every pooling, and what leads back."""

    def __init__(self, engine: Engine | None = ROWS) -> None:
        super().__init__()
        self.stem = Conv3d(2, 4, (3, 1, 3), engine=engine)
        self.down = Conv3d(4, 4, 2, 2, bias=False, engine=engine)
        self.norm = FeatureWise(nn.BatchNorm1d(4))
        self.pools = nn.ModuleList([MaxPool3d(3, 2), AvgPool3d(3, 2), AvgPool3d(2, 2)])
        self.back = ConvTranspose3d(4, 4, 3, 2, engine=engine)
        self.up = ConvTranspose3d(4, 3, 2, 2, engine=engine)
        self.whole = GlobalMaxPool()

    def forward(self, x: SparseTensor) -> SparseTensor:
        fine = self.stem(x)
        middle = self.norm(self.down(fine))
        pooled = [pool(middle) for pool in self.pools]
        low = pooled[0].replace(sum(one.features for one in pooled))
        y = self.up(self.back(low, middle), fine)
        return y.replace(y.features + self.whole(low).mean())


def cloud(points: int, seed: int, extent: int = 24) -> tuple[SparseTensor, Tensor]:
    """Voxels near a bent sheet, with their labels, of which some are 255."""
    draw = torch.Generator().manual_seed(seed)
    cells = torch.randint(0, extent, (points, 3), generator=draw)
    cells[:, 2] = (cells[:, 0] + cells[:, 1]) // 8 + cells[:, 2] % 2
    grid = grid_of_cells(cells.unique(dim=0), downsampling="floor")
    features = torch.randn(grid.rows, 2, generator=draw)
    labels = torch.randint(0, 3, (grid.rows,), generator=draw)
    labels[:5] = 255
    return SparseTensor(features, grid), labels


def points(number: int, seed: int, cell: float = 0.1) -> tuple[SparseTensor, Tensor]:
    """Native points of two clouds on a surface, some in one cell, with labels as of `cloud`."""
    draw = torch.Generator().manual_seed(seed)
    places = (surface(number, seed) + torch.rand(number, 3, generator=draw)) * 0.07
    batch = torch.randint(0, 2, (number,), generator=draw)
    features = torch.randn(number, 2, generator=draw).double()
    labels = torch.randint(0, 3, (number,), generator=draw)
    labels[1:5] = 255
    return native_points(places, features, batch, cell, batch_size=2), labels


def tensors(output: Any) -> list[Tensor]:
    """The tensors of an output, of sparse ones their features."""
    if isinstance(output, dict):
        output = [*output["levels"], output["whole"], output["more"]]
    parts = output if isinstance(output, list) else [output]
    return [part.features if isinstance(part, SparseTensor) else part for part in parts]


def in_threads(clouds: int, check: Callable[[int], None]) -> None:
    """Check every one of so many clouds again and again in four threads, each on its stream."""
    wrong: list[str] = []

    def work(own: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(12):
                try:
                    check((own + turn) % clouds)
                except (AssertionError, RuntimeError) as error:
                    wrong.append(f"{own} {turn} {error}")

    threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
