"""Whole networks on native points whose sites are those of voxels, with the same weights."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn import models
from pcnn.geometry import quantize
from pcnn.ops import Engine
from pcnn.ops.engine import resolve
from tests.clouds import surface

WIDTH = 0.25  # of all but one network


def segmenting(in_channels: int, out_channels: int, engine: Engine) -> nn.Module:
    """As `model=sparse_resnet` makes it: it ends in a (1, 1, 3) kernel of stride (1, 1, 2)."""
    backbone = models.SparseResNet21(in_channels, WIDTH, engine=engine)
    return models.SparseResNetSegmentation(backbone, out_channels, engine=engine)


def stages(in_channels: int, out_channels: int, engine: Engine) -> nn.Module:
    return models.SparseResNetLarge(in_channels, WIDTH, engine=engine)


MODELS = {
    "litept": partial(models.LitePTS, width=WIDTH, drop_path=0.0, shuffle_orders=False),
    "minkunet": models.MinkUNet42,
    "resnet18": partial(models.ResNet18, width=WIDTH),
    "resunet": partial(models.ResUNetBN2C, width=WIDTH),
    "sparse_resnet": segmenting,
    "sparse_resnet_large": stages,
}


def outputs(net: nn.Module, x: pcnn.SparseTensor) -> list[Tensor]:
    out = net(x)
    return [getattr(one, "features", one) for one in (out if isinstance(out, list) else [out])]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("litept", 0.05),
        ("minkunet", 0.05),
        ("resnet18", 0.05),
        ("resunet", 0.05),
        ("sparse_resnet", (0.1, 0.1, 0.2)),
        ("sparse_resnet_large", (0.1, 0.1, 0.2)),
    ],
)
def test_a_network_gives_what_it_gives_on_voxels(
    name: str, size: float | tuple[float, float, float]
) -> None:
    model: Callable[..., nn.Module] = MODELS[name]
    cells = surface(600)
    points = (cells + torch.rand(cells.shape)).double() * torch.tensor(size).double()
    batch = torch.arange(len(points)) % 2
    features = torch.randn(len(points), 4, dtype=torch.float64)
    native = pcnn.native_points(
        points, features, batch, size, downsampling="cell_origin", thin=size
    )
    grid = quantize(points, batch, voxel_size=size)
    results = []
    net = model(4, 5, engine=resolve("reference")).double()
    for x in (pcnn.SparseTensor(native.features, grid), native):
        net.zero_grad()
        out = outputs(net, x)
        sum(one.square().sum() for one in out).backward()
        grads = [p.grad.clone() for p in net.parameters() if p.grad is not None]
        results.append([*(one.detach() for one in out), *grads])
    assert len(results[0]) == len(results[1]) > 20
    # attention reads where native points stand, and that is float32
    bound = 1e-6 if name == "litept" else 1e-9
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("name", MODELS)
def test_a_network_runs_on_scattered_points(name: str) -> None:
    """Several points in a cell, and cells that are no cubes: no site is a voxel's."""
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(600, 3, generator=generator) * torch.tensor([12.0, 12.0, 4.0])
    batch = torch.arange(600) % 2
    x = pcnn.native_points(points, points, batch, (0.5, 0.5, 0.7))
    assert not x.geometry.one_per_cell
    out = outputs(MODELS[name](3, 5, engine=resolve("auto")), x)
    assert all(torch.isfinite(one).all() for one in out)
    if name in ("litept", "minkunet", "resunet", "sparse_resnet"):
        assert out[0].shape == (600, 5)
    if name == "sparse_resnet_large":
        assert [one.shape[1] for one in out] == [4, 8, 16, 32]
