"""Small networks and clouds for steps in memory of fixed size, and a capture that runs again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.geometry import grid_of_cells
from pcnn.maps import SortedSearch
from pcnn.models.minkunet import MinkUNet42
from pcnn.ops import Engine
from pcnn.runtime.capture import Figures
from pcnn.tensor import SparseTensor

#: The layouts of a GPU, in torch operations.
TILES = Engine("tiles", SortedSearch(), OutputStationary(sections=False))


def rerun(work: Callable[[], Figures]) -> Callable[[], Figures]:
    """A capture for devices without graphs: the function itself, on the memory it was given."""
    return lambda: {name: value.clone() for name, value in work().items()}


def network(norm: Callable[[int], nn.Module] = nn.BatchNorm1d, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return MinkUNet42(2, 3, 0.125, TILES, norm=norm)


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
