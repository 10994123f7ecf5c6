"""Arithmetic, dense volumes, given cells and pruning on a device: values, gradients and waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.nn import Conv3d, ConvTranspose3d, prune
from tests.clouds import surface_grid
from tests.waits import nothing_waits

pytestmark = pytest.mark.gpu

BOX = (40, 30, 20), (-20, -10, -10)


def arithmetic(x: pcnn.SparseTensor) -> Tensor:
    return (2 - x * x.features[:, :1] / (x * x + 1)).features


def filled(x: pcnn.SparseTensor) -> Tensor:
    return x.dense(*BOX)


def box_of_sites(x: pcnn.SparseTensor) -> Tensor:
    return x.dense()


def read_back(x: pcnn.SparseTensor) -> Tensor:
    volume = x.features.new_zeros(2, 4, *BOX[0]) + x.features.mean(0)[:, None, None, None]
    return pcnn.SparseTensor.from_dense(
        volume, BOX[1], x.tensor_stride, geometry=x.geometry
    ).features


def occupied(x: pcnn.SparseTensor) -> Tensor:
    return pcnn.SparseTensor.from_dense(x.dense(*BOX), BOX[1], x.tensor_stride).features


def given_again(x: pcnn.SparseTensor) -> Tensor:
    order = torch.arange(len(x) - 1, -1, -1, device=x.device)
    made = pcnn.from_coordinates(x.coords[order], x.features[order], tensor_stride=x.tensor_stride)
    return layers_behind(made)


def pruned(x: pcnn.SparseTensor) -> Tensor:
    return layers_behind(prune(x, x.coords.sum(1) % 3 != 0))


def layers_behind(x: pcnn.SparseTensor) -> Tensor:
    torch.manual_seed(0)
    layers = Conv3d(4, 4, 3), Conv3d(4, 4, 2, 2), ConvTranspose3d(4, 4, 2, 2)
    same, down, up = (layer.double().to(x.device) for layer in layers)
    net = torch.nn.Sequential(same, down)
    pcnn.plan(net, x.geometry)
    out: Tensor = up(net(x), out=x.geometry).features
    return out


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("operation", "waits"),
    [
        (arithmetic, False),
        (filled, False),
        (box_of_sites, True),
        (read_back, False),
        (occupied, True),
        (given_again, True),
        (pruned, True),
    ],
)
def test_a_device_gives_the_values_of_the_host(
    operation: Callable[[pcnn.SparseTensor], Tensor], waits: bool, stride: int
) -> None:
    host = surface_grid(800, batch_size=2).strided(pcnn.Kernel.of(stride, stride))
    values, found = torch.randn(host.rows, 4).double(), []
    for device in ("cpu", "cuda"):
        features = values.to(device).requires_grad_()
        x = pcnn.SparseTensor(features, host.to(device))
        with nullcontext() if waits else nothing_waits(device):
            out = operation(x)
            (grad,) = torch.autograd.grad(out.square().sum(), features)
        found.append((out.detach().cpu(), grad.cpu()))
    for host_side, device_side in zip(*found, strict=True):
        assert host_side.any()
        torch.testing.assert_close(device_side, host_side)


def test_pruning_is_refused_in_a_graph() -> None:
    grid = surface_grid(50).to("cuda")
    x = pcnn.SparseTensor(torch.randn(grid.rows, 2, device="cuda"), grid)
    mask = torch.ones(grid.rows, dtype=torch.bool, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="prune decides about sites"), torch.cuda.graph(graph):
        prune(x, mask)
