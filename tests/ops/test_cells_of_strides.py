"""Cells of any tensor stride, with their batch in the first column."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.nn import Conv3d, ConvTranspose3d
from tests.clouds import surface_grid


def cells_of(n: int, stride: tuple[int, int, int]) -> Tensor:
    """``[n, 4]`` cells around zero in no order, some of them twice; cloud 1 of 3 is empty."""
    generator = torch.Generator().manual_seed(n)
    cells = torch.randint(-4, 4, (n, 3), generator=generator) * torch.tensor(stride)
    return torch.cat([torch.randint(0, 2, (n, 1), generator=generator) * 2, cells], dim=1)


@pytest.mark.parametrize("stride", [(1, 1, 1), (2, 2, 2), (4, 2, 1)])
@pytest.mark.parametrize("n", [0, 1, 300])
def test_cells_of_a_stride(n: int, stride: tuple[int, int, int]) -> None:
    cells = cells_of(n, stride)
    features = torch.randn(n, 2, dtype=torch.float64)
    x = pcnn.from_coordinates(cells, features, reduce="sum", tensor_stride=stride, batch_size=3)
    x.geometry.validate()  # type: ignore[attr-defined]
    assert (x.tensor_stride, x.batch_size) == (stride, 3)
    expected: dict[tuple[int, ...], Tensor] = {}
    for cell, row in zip(map(tuple, cells.tolist()), features, strict=True):
        expected[cell] = expected.get(cell, torch.zeros(2)) + row
    assert [tuple(row) for row in x.coords.tolist()] == sorted(expected)
    for coords, row in zip(map(tuple, x.coords.tolist()), x.features, strict=True):
        torch.testing.assert_close(row, expected[coords])
    again = pcnn.from_coordinates(x.coords, x.features, tensor_stride=stride, batch_size=3)
    assert torch.equal(again.features, x.features)
    assert torch.equal(again.geometry.keys, x.geometry.keys)


def test_layers_continue_from_a_given_level() -> None:
    grid = surface_grid(80, batch_size=2)
    down, net, up = Conv3d(2, 3, 2, 2), Conv3d(3, 3, 3, 2), ConvTranspose3d(3, 1, 3, 2)
    x = down(pcnn.SparseTensor(torch.randn(grid.rows, 2), grid))
    given = pcnn.from_coordinates(x.coords, x.features, tensor_stride=2)
    pcnn.plan(net, given.geometry)
    y, expected = net(given), net(x)
    assert torch.equal(y.coords, expected.coords)
    assert y.tensor_stride == (4, 4, 4)
    torch.testing.assert_close(y.features, expected.features)
    torch.testing.assert_close(up(y, given.geometry).features, up(expected, x.geometry).features)
    # the cells that were given stand in the place of points
    assert torch.equal(y.at_points(), y.features[y.geometry.point_rows()])


@pytest.mark.parametrize("reduce", ["mean", "sum", "first"])
def test_gradients_reach_the_cells(reduce: str) -> None:
    cells = cells_of(40, (2, 2, 2))
    leaf = torch.randn(40, 2, dtype=torch.float64, requires_grad=True)

    def act(features: Tensor) -> Tensor:
        made = pcnn.from_coordinates(cells, features, reduce=reduce, tensor_stride=2)
        return made.features

    assert torch.autograd.gradcheck(act, leaf)
