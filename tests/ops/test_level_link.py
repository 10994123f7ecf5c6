"""Moves between the finest sites and a level, against a devoxelisation and a loop."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

import pcnn
from pcnn.geometry import Kernel, VoxelGrid
from pcnn.ops.level_link import LevelLink
from tests.clouds import surface_grid
from tests.tolerance import DENSE


def levels(n: int, stride: int | tuple[int, int, int]) -> tuple[VoxelGrid, VoxelGrid]:
    """Sites on both sides of the origin, in two clouds, the last of which may be empty."""
    cells = surface_grid(n).coords[:, 1:].long() - 5
    fine = pcnn.geometry.grid_of_cells(cells, torch.arange(len(cells)) % 2, 3)
    return fine, fine.strided(Kernel.of(stride, stride))


@pytest.mark.parametrize("n", [0, 1, 150])
@pytest.mark.parametrize("stride", [2, 16, (4, 1, 3)])
def test_sites_have_the_features_of_a_devoxelisation(
    n: int, stride: int | tuple[int, int, int]
) -> None:
    fine, coarse = levels(n, stride)
    link = LevelLink.of(fine, coarse)
    features = torch.randn(coarse.rows, 3, dtype=torch.float64)
    # there a voxel stands at the centre of its cell, here at the lowest corner
    points = fine.coords[:, 1:] + 0.5 * torch.tensor(coarse.tensor_stride).double()
    expected = pcnn.devoxelize(
        pcnn.SparseTensor(features, coarse), points, fine.coords[:, 0], voxel_size=1.0
    )
    found = link.interpolated(features)
    torch.testing.assert_close(found, expected, rtol=DENSE, atol=DENSE)
    assert link.interpolated(features.half()).dtype == torch.float16
    ones = torch.ones(coarse.rows, 1, dtype=torch.float64)
    torch.testing.assert_close(link.interpolated(ones), torch.ones(fine.rows, 1).double())


def test_cells_have_the_means_of_their_sites() -> None:
    fine, coarse = levels(150, 4)
    features = torch.randn(fine.rows, 2, dtype=torch.float64, requires_grad=True)
    link = LevelLink.of(fine, coarse)
    cells: dict[tuple[int, ...], list[torch.Tensor]] = {}
    for (batch, *site), row in zip(fine.coords.tolist(), features, strict=True):
        cells.setdefault((batch, *(c // 4 * 4 for c in site)), []).append(row)
    expected = torch.stack([sum(rows) / len(rows) for _, rows in sorted(cells.items())])
    torch.testing.assert_close(link.coarsened(features), expected, rtol=DENSE, atol=DENSE)


def test_gradients() -> None:
    fine, coarse = levels(12, 4)
    link = LevelLink.of(fine, coarse)
    inputs = [torch.randn(g.rows, 2).double().requires_grad_() for g in (coarse, fine)]
    assert gradcheck(link.interpolated, inputs[:1])
    assert gradcheck(link.coarsened, inputs[1:])
