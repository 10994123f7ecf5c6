"""Points and cells to tensors: every reduction, with and without gradients, by all kernels."""

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.geometry import Kernel
from pcnn.nn import Conv3d, ConvTranspose3d
from pcnn.ops import reduce_points
from pcnn.ops.prefetch import tensors_of
from tests.clouds import batched, cloud, surface_grid

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


@pytest.mark.parametrize("channels", [0, 1, 6, 9])
def test_features_that_need_no_gradient_take_the_same_sums(channels: int) -> None:
    points, batch, _ = drawn(500)
    grid = pcnn.geometry.quantize(points, batch, voxel_size=1.5, batch_size=2)
    features = torch.randn(500, channels)
    for reduce in ("mean", "sum"):
        plain = reduce_points(features, grid, reduce)
        followed = reduce_points(features.clone().requires_grad_(), grid, reduce)
        assert torch.equal(plain, followed.detach())
        assert plain.shape == (grid.rows, channels)


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


def test_features_follow_their_points_and_gradients_come_back() -> None:
    points, batch = batched(200)
    features = torch.randn(200, 4, requires_grad=True)
    x = pcnn.native_points(points, features, batch, 0.5)
    assert isinstance(x.geometry, pcnn.PointSet)
    assert torch.equal(x.at_points(), features)
    assert x.channels == 4
    x.features.pow(2).sum().backward()
    assert torch.equal(features.grad, 2 * features.detach())


def test_thinned_points_stand_for_their_neighbours() -> None:
    points = torch.tensor([[0.1, 0.1, 0.1], [0.5, 0.5, 0.5], [0.9, 0.9, 0.9], [1.5, 0.5, 0.5]])
    x = pcnn.native_points(points, points, None, 3.0, thin=1.0)
    assert x.features.tolist() == [[0.5, 0.5, 0.5], [1.5, 0.5, 0.5]]
    assert x.at_points().tolist() == [[0.5] * 3] * 3 + [[1.5, 0.5, 0.5]]


def test_a_tensor_on_points_moves_whole() -> None:
    x = pcnn.native_points(cloud(20), torch.zeros(20, 2), voxel_size=0.5)
    assert x.to("cpu").geometry is x.geometry
    moved = x.geometry.to("meta")
    assert isinstance(moved, pcnn.PointSet)
    assert {t.device.type for t in (moved.points, moved.origins, moved.corners)} == {"meta"}
    assert x.replace(torch.ones(20, 5)).channels == 5
    level = x.geometry.strided(Kernel.of(2, 2))
    listed = {tensor.data_ptr() for tensor in tensors_of(x)}
    for geometry in (x.geometry, level):
        parts = (geometry.points, geometry.origins, geometry.keys, geometry.inverse)
        assert listed.issuperset(part.data_ptr() for part in parts)
