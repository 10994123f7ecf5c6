from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

import pcnn
from pcnn.geometry import Geometry, Kernel, grid_of_cells
from pcnn.nn import GlobalAvgPool, InstanceNorm, Sequential, broadcast, cat
from tests.clouds import surface
from tests.tolerance import RELATIVE_RMS, relative_rms

CLOUDS = 4


def sites(n: int, stride: int = 1) -> Geometry:
    """Four clouds: of most sites, of none, of one, of a few."""
    cells = torch.cat([surface(n), torch.tensor([[-3, 0, 2]] * min(1, n)), surface(n // 4, 3)])
    batch = torch.tensor([0] * n + [2] * min(1, n) + [3] * (n // 4), dtype=torch.int64)
    return grid_of_cells(cells, batch, CLOUDS).strided(Kernel.of(stride, stride))


def features(grid: Geometry, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(grid.rows)
    return 2 * torch.randn(grid.rows, channels, generator=generator).double() + 5


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 60])
def test_rows_of_clouds_come_to_their_sites(n: int, stride: int) -> None:
    grid = sites(n, stride)
    values = torch.arange(CLOUDS * 2.0).view(CLOUDS, 2).double().requires_grad_()
    found = broadcast(values, grid)
    assert torch.equal(found.features, values[grid.batch_index])
    (grad,) = torch.autograd.grad(found.features.sum(), values)
    assert grad[:, 0].tolist() == torch.bincount(grid.batch_index, minlength=CLOUDS).tolist()


def test_clouds_are_scaled_by_their_rows() -> None:
    grid = sites(30)
    x = pcnn.SparseTensor(features(grid), grid)
    gates = torch.rand(CLOUDS, 3).double().requires_grad_()

    def gated(values: Tensor, own: Tensor) -> Tensor:
        tensor = x.replace(own)
        joined = cat(tensor * broadcast(values, grid), broadcast(values[:, :1], grid))
        return joined.features

    expected = [row * gates[int(b)] for row, b in zip(x.features, grid.batch_index, strict=True)]
    assert torch.equal(gated(gates, x.features)[:, :3], torch.stack(expected))
    assert gradcheck(gated, (gates, x.features.requires_grad_()))
    assert gradgradcheck(gated, (gates, x.features))


def test_gradients_of_half_rows_are_summed_wide() -> None:
    grid = grid_of_cells(torch.arange(5000)[:, None].expand(-1, 3))
    values = torch.ones(1, 2).half().requires_grad_()
    (grad,) = torch.autograd.grad(broadcast(values, grid).features.sum(), values)
    assert (grad == 5000).all()  # one by one half precision stops at 2048


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 60])
def test_every_cloud_is_normalised_by_itself(n: int, stride: int, affine: bool) -> None:
    grid = sites(n, stride)
    x = pcnn.SparseTensor(features(grid), grid)
    layer = InstanceNorm(3, affine=affine).double()
    theirs = nn.InstanceNorm1d(3, affine=affine).double()
    if layer.weight is not None and layer.bias is not None:
        nn.init.uniform_(layer.weight)
        nn.init.uniform_(layer.bias)
        theirs.load_state_dict(layer.state_dict())
    found = layer(x)
    assert torch.equal(layer.eval()(x).features, found.features)
    for cloud in range(CLOUDS):
        own = grid.batch_index == cloud
        rows = x.features[own]
        if len(rows) > 1:  # torch refuses a single one
            wanted = theirs(rows.t()).t()
        else:
            wanted = torch.zeros_like(rows) if layer.bias is None else layer.bias.expand_as(rows)
        torch.testing.assert_close(found.features[own], wanted)


def test_gradients_of_the_norm_exist_for_clouds_of_any_size() -> None:
    grid = sites(12)
    layer = InstanceNorm(2, eps=0.1, affine=True).double()
    parameters = features(grid, 2).requires_grad_(), *layer.parameters()

    def normalised(own: Tensor, *_: Tensor) -> Tensor:
        found: Tensor = layer(pcnn.SparseTensor(own, grid)).features
        return found

    assert gradcheck(normalised, parameters)
    assert gradgradcheck(normalised, parameters)


def test_half_precision_has_wide_statistics() -> None:
    grid = sites(60)
    x = pcnn.SparseTensor(features(grid).half(), grid)
    wanted = InstanceNorm(3)(x.replace(x.features.double())).features
    found = Sequential(InstanceNorm(3), nn.ReLU())(x).features
    assert found.dtype == torch.float16
    assert relative_rms(found, wanted.relu()) < RELATIVE_RMS[torch.float16]


def test_spare_rows_are_zero_and_in_no_statistics() -> None:
    grid = sites(30)
    x = features(grid)
    spare = torch.full((5,), grid.key_format.sentinel)
    keys, count = torch.cat([grid.keys, spare]), torch.tensor([grid.rows], dtype=torch.int32)
    padded = replace(grid, keys=keys, count=count, inverse=None)  # type: ignore[type-var]
    wide = pcnn.SparseTensor(torch.cat([x, torch.zeros(5, 3)]), padded)
    layer = InstanceNorm(3, affine=True).double()
    nn.init.ones_(layer.bias)  # type: ignore[arg-type]
    wanted = layer(pcnn.SparseTensor(x, grid)).features
    torch.testing.assert_close(layer(wide).features[: grid.rows], wanted)
    means = GlobalAvgPool()(wide)
    assert torch.equal(broadcast(means, padded).features[: grid.rows], means[grid.batch_index])
    for made in (layer(wide), broadcast(means, padded)):
        assert not made.features[grid.rows :].any()


def test_native_points() -> None:
    points = pcnn.native_points(torch.randn(9, 3), torch.randn(9, 2), voxel_size=1.0)
    wanted = nn.InstanceNorm1d(2)(points.features.t()).t()
    torch.testing.assert_close(InstanceNorm(2)(points).features, wanted)
