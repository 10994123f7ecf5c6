"""Points to voxels: every reduction, with and without gradients, by torch and by kernels."""

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.ops import reduce_points

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
