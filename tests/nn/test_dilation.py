"""Sites that a kernel of stride 1 reaches, against torch's dense convolution."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import pcnn
from pcnn.geometry import Kernel
from pcnn.nn import Conv3d, SparseConv3d
from tests.clouds import surface_grid
from tests.tolerance import DENSE

KERNELS: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": 2, "dilation": (1, 2, 1)},
    {"kernel_size": (1, 3, 4), "padding": (0, 0, 2)},
]


def tensor(channels: int = 2, n: int = 20, **fields: Any) -> pcnn.SparseTensor:
    grid = replace(surface_grid(n, batch_size=3, seed=1), **fields)
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(grid.rows, channels, dtype=torch.float64, generator=draw)
    return pcnn.SparseTensor(features.requires_grad_(), grid)


@pytest.mark.parametrize("setting", KERNELS, ids=str)
@pytest.mark.parametrize("strides", [(1, 1, 1), (2, 4, 1)])
def test_convolution_and_sites_are_dense(setting: dict[str, Any], strides: Any) -> None:
    x = tensor()
    coarse = pcnn.from_coordinates(
        x.coords[:, 1:] * torch.tensor(strides),
        x.features,
        x.coords[:, 0],
        tensor_stride=strides,
        batch_size=3,
    )
    layer = SparseConv3d(2, 3, **setting).double()
    y = layer(coarse)
    kernel, room = layer.kernel, 12
    far = torch.tensor(strides) * -room
    cells = [2 * room + 1] * 3
    dense = coarse.dense(cells, far.tolist())
    weight = layer.weight.view(*kernel.size, 2, 3).permute(4, 3, 0, 1, 2)
    wanted = nn.functional.conv3d(
        dense, weight, layer.bias, padding=kernel.padding, dilation=kernel.dilation
    )
    there = coarse.replace(torch.ones(len(x), 1).double()).dense(cells, far.tolist())
    ones = torch.ones(1, 1, *kernel.size).double()
    reached = nn.functional.conv3d(there, ones, padding=kernel.padding, dilation=kernel.dilation)
    ends = [0, *(n for size in reversed(wanted.shape[2:]) for n in (0, 2 * room + 1 - size))][1:]
    wanted = nn.functional.pad(wanted * (reached > 0.5), ends)
    own = y.dense(cells, far.tolist())
    assert len(y) == int((reached > 0.5).sum())
    torch.testing.assert_close(own, wanted, atol=DENSE, rtol=DENSE)
    weights = torch.randn_like(own)
    for leaf in (x.features, layer.weight, layer.bias):
        sums = (own * weights).sum(), (wanted * weights).sum()
        grads = (torch.autograd.grad(total, leaf, retain_graph=True)[0] for total in sums)
        torch.testing.assert_close(*grads, atol=DENSE, rtol=DENSE)


def test_a_volume_bounds_sites() -> None:
    x = tensor(n=6)
    cells = x.coords[:, 1:].abs()
    x = pcnn.from_coordinates(cells, x.features, x.coords[:, 0], batch_size=3)
    shape = tuple(int(n) + 1 for n in cells.amax(0))
    bounded = replace(x.geometry, spatial_shape=shape)
    reach = SparseConv3d(2, 1, 3).double()
    wide = reach(pcnn.SparseTensor(x.features, bounded))
    wide.geometry.validate()
    assert wide.geometry.spatial_shape == shape
    inside = reach(x).coords[:, 1:]
    kept = ((inside >= 0) & (inside < torch.tensor(shape))).all(1)
    assert torch.equal(wide.coords[:, 1:], inside[kept])


def test_a_plan_makes_the_sites() -> None:
    net = nn.Sequential(SparseConv3d(2, 3, 3), Conv3d(3, 2, 2, 2), SparseConv3d(2, 2, 3)).double()
    x = tensor()
    pcnn.plan(net, x.geometry)
    built = dict(x.geometry.levels())
    planned = net(x)
    assert x.geometry.levels() == built
    torch.testing.assert_close(net(tensor()).features, planned.features)


def test_few_sites() -> None:
    none = pcnn.from_coordinates(torch.zeros(0, 3), torch.zeros(0, 2), batch_size=2)
    assert len(SparseConv3d(2, 1, 3)(none)) == 0
    x = tensor()
    assert SparseConv3d(2, 1, 1).double()(x).geometry is x.geometry
    points = pcnn.native_points(torch.rand(9, 3), torch.rand(9, 2), voxel_size=0.3)
    with pytest.raises(TypeError, match="PointSet"):
        SparseConv3d(2, 1, 3)(points)
    with pytest.raises(ValueError, match="stride 1"):
        x.geometry.dilated(Kernel.of(3, 2))  # type: ignore[attr-defined]
