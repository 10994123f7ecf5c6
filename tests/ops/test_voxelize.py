import pytest
import torch

import pcnn
from pcnn.ops import reduce_points


@pytest.mark.usefixtures("where")
def test_points_of_a_voxel_are_reduced() -> None:
    points = torch.tensor([[0.1, 0, 0], [0.9, 0, 0], [-0.5, 0, 0], [0.2, 0, 0]])
    features = torch.tensor([[1.0], [2.0], [5.0], [6.0]])
    wanted = (("mean", [5, 3]), ("sum", [5, 9]), ("max", [5, 6]), ("first", [5, 1]))
    for reduce, expected in wanted:
        x = pcnn.voxelize(points, features, voxel_size=1.0, reduce=reduce)
        assert x.features[:, 0].tolist() == expected
    assert x.geometry.inverse.tolist() == [1, 1, 0, 1]
    assert x.at_points()[:, 0].tolist() == [1, 1, 5, 1]


def test_gradients_reach_the_points() -> None:
    points, features = torch.rand(50, 3), torch.rand(50, 2, requires_grad=True)
    pcnn.voxelize(points, features, voxel_size=0.5).features.sum().backward()
    assert float(features.grad.sum()) == pytest.approx(
        2 * len(points.div(0.5).floor().unique(dim=0))
    )


@pytest.mark.parametrize("reduce", ["mean", "sum"])
@pytest.mark.parametrize("channels", [0, 1, 6])
def test_features_that_need_no_gradient_take_the_same_sums(reduce: str, channels: int) -> None:
    points, features = torch.rand(500, 3), torch.randn(500, channels)
    for rows in (500, 1, 0):
        few = points[:rows], features[:rows]
        grid = pcnn.geometry.quantize(few[0], voxel_size=0.3, batch_size=1)
        plain = reduce_points(few[1], grid, reduce)
        followed = reduce_points(few[1].clone().requires_grad_(), grid, reduce)
        assert torch.equal(plain, followed.detach())
        assert plain.shape == (grid.rows, channels)


@pytest.mark.parametrize("many", [0, 1, 80])
def test_maximum_and_first_points(many: int) -> None:
    draw = torch.Generator().manual_seed(many)
    points = torch.rand(many, 3, generator=draw) * 4 - 2
    batch = torch.randint(0, 2, (many,), generator=draw)
    features = torch.randn(many, 2, dtype=torch.float64, generator=draw).requires_grad_()
    given = {"voxel_size": 0.9, "batch_size": 3}
    x = pcnn.voxelize(points, features, batch, reduce="max", **given)
    rows, weights = x.geometry.inverse, torch.randn(x.shape, dtype=torch.float64)
    expected = torch.stack([features[rows == row].amax(0) for row in range(len(x))] or [x.features])
    assert torch.equal(x.features, expected.view(x.shape))
    (own,) = torch.autograd.grad((x.features * weights).sum(), features, retain_graph=True)
    (wanted,) = torch.autograd.grad((expected.view(x.shape) * weights).sum(), features)
    assert torch.equal(own, wanted)
    first = x.geometry.unique_index()
    assert first.tolist() == [rows.tolist().index(row) for row in range(len(x))]
    same = pcnn.voxelize(points, features, batch, reduce="first", **given)
    assert torch.equal(same.features, features[first])


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_kernels_reduce_as_torch_does(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    points = (torch.rand(400, 3, generator=generator) * 4 - 2).to(dtype).double()
    points[7] = torch.tensor([3e4 + 0.3, -1e5, 0.0], dtype=torch.float64)
    batch = torch.arange(400) % 2
    features = torch.randn(400, 3, generator=generator).to(dtype)
    for at in (points, points.float()):
        x = pcnn.voxelize(at, features, batch, voxel_size=(0.5, 1.0, 0.7))
        size = torch.tensor([0.5, 1.0, 0.7], dtype=torch.float64)
        cells = torch.cat([batch[:, None], torch.floor(at.double() / size).long()], 1)
        wanted, rows = torch.unique(cells, dim=0, return_inverse=True)
        assert torch.equal(x.geometry.coords.long(), wanted)
        assert torch.equal(x.geometry.inverse, rows)
        mean = torch.zeros(len(wanted), 3, dtype=torch.float64)
        mean.index_reduce_(0, rows, features.double(), "mean", include_self=False)
        torch.testing.assert_close(
            x.features.double(), mean, rtol=1e-3 if dtype == torch.float16 else 1e-6, atol=1e-6
        )
