"""A device gives what the host gives: operations on sites, their gradients, and a training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.nn import Conv3d, ConvTranspose3d
from tests.clouds import surface_grid
from tests.waits import nothing_waits

pytestmark = pytest.mark.gpu

BOX = (40, 30, 20), (-20, -10, -10)


def given_again(x: pcnn.SparseTensor) -> Tensor:
    order = torch.arange(len(x) - 1, -1, -1, device=x.device)
    made = pcnn.from_coordinates(x.coords[order], x.features[order], tensor_stride=x.tensor_stride)
    return layers_behind(made)


def layers_behind(x: pcnn.SparseTensor) -> Tensor:
    torch.manual_seed(0)
    layers = Conv3d(4, 4, 3), Conv3d(4, 4, 2, 2), ConvTranspose3d(4, 4, 2, 2)
    same, down, up = (layer.double().to(x.device) for layer in layers)
    net = torch.nn.Sequential(same, down)
    pcnn.plan(net, x.geometry)
    out: Tensor = up(net(x), out=x.geometry).features
    return out


def pruned(x: pcnn.SparseTensor) -> pcnn.SparseTensor:
    rows = (x.coords.sum(1) % 3 != 0).nonzero()[:, 0]
    return pcnn.SparseTensor(x.features[rows], x.geometry.at_rows(rows))


#: Operations, and whether they wait.
OPERATIONS: dict[str, tuple[Callable[[pcnn.SparseTensor], Tensor], bool]] = {
    "arithmetic": (lambda x: (2 - x * x.features[:, :1] / (x * x + 1)).features, False),
    "a box": (lambda x: x.dense(*BOX), False),
    "a box of the sites": (lambda x: x.dense(), True),
    "given again": (given_again, True),
    "pruned": (lambda x: layers_behind(pruned(x)), True),
}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_and_their_gradients(name: str, stride: int) -> None:
    operation, waits = OPERATIONS[name]
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
