"""Points and cells to tensors: every reduction, with and without gradients, by all kernels."""

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.nn import Conv3d, ConvTranspose3d
from pcnn.ops import reduce_points
from tests.clouds import surface_grid

SIZE = (0.5, 1.0, 0.7)


def drawn(many: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(many)
    points = torch.rand(many, 3, generator=draw, dtype=torch.float64) * 4 - 2
    if many > 7:
        points[7] = torch.tensor([3e4 + 0.3, -1e5, 0.0])
    batch = torch.randint(0, 2, (many,), generator=draw)
    return points, batch, torch.randn(many, 3, generator=draw).to(dtype)


def looped(points: Tensor, batch: Tensor, features: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """Sites, and their features in float64."""
    cells = torch.floor(points.double() / torch.tensor(SIZE, dtype=torch.float64)).long()
    sites, rows = torch.unique(torch.cat([batch[:, None], cells], 1), dim=0, return_inverse=True)
    reductions = {
        "mean": lambda own: own.mean(0),
        "sum": lambda own: own.sum(0),
        "max": lambda own: own.amax(0),
        "first": lambda own: own[0],
    }
    values = [reductions[reduce](features.double()[rows == row]) for row in range(len(sites))]
    return sites, torch.stack(values) if values else features.double()


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize("reduce", ["mean", "sum", "max", "first"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("many", [0, 1, 300])
def test_points_of_a_voxel_are_reduced(many: int, dtype: torch.dtype, reduce: str) -> None:
    points, batch, features = drawn(many, dtype)
    sites, expected = looped(points, batch, features, reduce)
    tolerance = 2e-3 if dtype == torch.float16 else 2e-6
    for at in (points, points.float()):
        x = pcnn.voxelize(at, features, batch, voxel_size=SIZE, batch_size=3, reduce=reduce)
        if at is points or many < 8:
            assert torch.equal(x.geometry.coords.long(), sites)
        assert x.features.dtype == dtype
        torch.testing.assert_close(x.features.double(), expected, rtol=tolerance, atol=tolerance)
        assert torch.equal(x.at_points(), x.features[x.geometry.inverse])
    followed = features.clone().requires_grad_()
    out = reduce_points(followed, x.geometry, reduce)
    torch.testing.assert_close(out, x.features, rtol=tolerance, atol=tolerance)
    weights = torch.randn(out.shape, dtype=torch.float64)
    (grad,) = torch.autograd.grad((out.double() * weights).sum(), followed)
    wide = features.double().requires_grad_()
    (wanted,) = torch.autograd.grad((looped(points, batch, wide, reduce)[1] * weights).sum(), wide)
    if dtype != torch.float16 or reduce != "max":  # equal halves share the gradient there
        torch.testing.assert_close(grad.double(), wanted, rtol=tolerance, atol=tolerance)


def cells_of(n: int, stride: tuple[int, int, int]) -> Tensor:
    """``[n, 4]`` cells around zero in no order, some of them twice; cloud 1 of 3 is empty."""
    generator = torch.Generator().manual_seed(n)
    cells = torch.randint(-4, 4, (n, 3), generator=generator) * torch.tensor(stride)
    return torch.cat([torch.randint(0, 2, (n, 1), generator=generator) * 2, cells], dim=1)


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize("stride", [(1, 1, 1), (2, 2, 2), (4, 2, 1)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.float32], ids=str)
@pytest.mark.parametrize("n", [0, 1, 300])
def test_cells_of_a_stride(n: int, dtype: torch.dtype, stride: tuple[int, int, int]) -> None:
    cells = cells_of(n, stride)
    features, given = torch.randn(n, 2, dtype=torch.float64), cells.to(dtype)
    own = {"reduce": "sum", "tensor_stride": stride, "batch_size": 3}
    x = pcnn.from_coordinates(given[:, 1:], features, cells[:, 0].to(torch.int16), **own)
    assert (x.tensor_stride, x.batch_size) == (stride, 3)
    expected: dict[tuple[int, ...], Tensor] = {}
    for cell, row in zip(map(tuple, cells.tolist()), features, strict=True):
        expected[cell] = expected.get(cell, torch.zeros(2)) + row
    assert [tuple(row) for row in x.coords.tolist()] == sorted(expected)
    assert torch.equal(x.coords[x.geometry.inverse], cells.int())
    for coords, row in zip(map(tuple, x.coords.tolist()), x.features, strict=True):
        torch.testing.assert_close(row, expected[coords])
    again = pcnn.from_coordinates(x.coords, x.features, tensor_stride=stride, batch_size=3)
    assert torch.equal(again.features, x.features)
    assert torch.equal(again.geometry.keys, x.geometry.keys)


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize(
    "own",
    [
        {"cells": 1 << 17},
        {"cells": -(1 << 40)},
        {"cells": 0.5},
        {"cells": float("nan")},
        {"cells": 1, "tensor_stride": 2},
        {"batch": -1},
        {"batch": 1 << 32},
        {"batch": 511},
        {"batch": 2, "batch_size": 2},
        {"batch_size": 0},
        {"batch_size": 512},
    ],
    ids=str,
)
def test_cells_that_no_grid_holds(own: dict[str, float]) -> None:
    given = {"cells": 0, "batch": 0, **own}
    cells, batch = torch.tensor([[0, 0, given.pop("cells")]]), torch.tensor([given.pop("batch")])
    with pytest.raises(ValueError):
        pcnn.from_coordinates(cells, torch.ones(1, 1), batch, **given)


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
