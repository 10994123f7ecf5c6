"""The small flat cloud of the pictures, and its kernel map as the package builds it."""

from __future__ import annotations

import torch

import pcnn
from pcnn.geometry import KernelMap, VoxelGrid
from pcnn.nn import Conv3d
from pcnn.ops import resolve

#: x and y of the occupied cells, in the order of their rows.
CELLS = [(0, 1), (1, 1), (1, 2), (2, 2), (3, 0), (3, 2), (3, 3)]


def grid() -> VoxelGrid:
    """The cells as sites, all with z = 0."""
    cells = torch.tensor([(x, y, 0) for x, y in CELLS])
    made = pcnn.voxelize_cells(cells, torch.zeros(len(CELLS), 1)).geometry
    assert isinstance(made, VoxelGrid)
    assert [(int(x), int(y)) for x, y, _ in made.coords[:, -3:]] == CELLS
    return made


def kernel_map() -> KernelMap:
    """The map of a submanifold convolution of 3 x 3 x 1 slots."""
    sites = grid()
    return sites.kernel_map(sites, Conv3d(1, 1, (3, 3, 1)).kernel, resolve("reference"))


def triplets() -> list[tuple[int, int, int]]:
    """The map's (i, j, k), by slot."""
    j, i, offsets = kernel_map().layout("pairs")
    slots = torch.repeat_interleave(torch.arange(9), offsets.diff().cpu())
    return [(int(a), int(b), int(c)) for a, b, c in zip(i, j, slots, strict=True)]
