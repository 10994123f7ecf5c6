"""Whole networks on native points whose sites are those of voxels, with the same weights."""

from dataclasses import replace

import pytest
import torch

import pcnn
from pcnn.geometry import quantize
from pcnn.maps.radius import RadiusSearch
from pcnn.ops.engine import resolve
from tests.clouds import surface


@pytest.mark.parametrize("size", [1.0, 0.05])
@pytest.mark.parametrize("model", [pcnn.models.MinkUNet42, pcnn.models.ResNet18])
def test_a_network_gives_what_it_gives_on_voxels(model: type, size: float) -> None:
    cells = surface(1500)
    points = (cells + torch.rand(cells.shape)).double() * size
    batch = torch.arange(len(points)) % 2
    features = torch.randn(len(points), 4, dtype=torch.float64)
    native = pcnn.native_points(points, features, batch, size, sites="cell_origin", thin=size)
    grid = quantize(points, batch, voxel_size=size)
    results = []
    on_voxels = resolve("reference")
    on_points = replace(on_voxels, builder=RadiusSearch())
    weights = model(4, 5, engine=on_voxels).double().state_dict()
    for x, engine in (
        (pcnn.SparseTensor(native.features, grid), on_voxels),
        (native, on_points),
    ):
        net = model(4, 5, engine=engine).double()
        net.load_state_dict(weights)
        out = net(x)
        out = getattr(out, "features", out)
        out.square().sum().backward()
        results.append([out.detach(), *(p.grad for p in net.parameters() if p.grad is not None)])
    assert len(results[0]) == len(results[1]) > 20
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
