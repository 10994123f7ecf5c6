"""Look-ups, devoxelisation, unions and rows of clouds on a device: values, gradients and waits."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.geometry import Kernel, quantize
from pcnn.nn import union
from pcnn.ops import voxelize_onto
from tests.clouds import batched
from tests.waits import nothing_waits

pytestmark = pytest.mark.gpu

Operation = Callable[[pcnn.SparseTensor, Tensor, Tensor], Tensor]


def looked_up(x: pcnn.SparseTensor, points: Tensor, batch: Tensor) -> Tensor:
    return pcnn.lookup(x, points.floor().long(), batch)[0]


def nearest(x: pcnn.SparseTensor, points: Tensor, batch: Tensor) -> Tensor:
    return pcnn.devoxelize(x, points, batch, voxel_size=0.3, interpolation="nearest")


def trilinear(x: pcnn.SparseTensor, points: Tensor, batch: Tensor) -> Tensor:
    return pcnn.devoxelize(x, points, batch, voxel_size=0.3)


def averaged(x: pcnn.SparseTensor, points: Tensor, batch: Tensor) -> Tensor:
    features = nearest(x, points, batch) + points[:, :1]
    return voxelize_onto(x.geometry, points, features, batch, voxel_size=0.3).features


def united(x: pcnn.SparseTensor, points: Tensor, batch: Tensor) -> Tensor:
    grid = quantize(points, batch, voxel_size=0.3, batch_size=3).strided(Kernel.of(2, 2))
    return union(
        x, pcnn.SparseTensor(torch.ones_like(grid.keys)[:, None] * x.features[:1], grid)
    ).features


@pytest.mark.parametrize(
    ("operation", "waits"),
    [
        (looked_up, False),
        (nearest, False),
        (trilinear, True),
        (averaged, True),
        (united, True),
    ],
)
def test_a_device_gives_the_values_of_the_host(operation: Operation, waits: bool) -> None:
    points, batch = batched(3000, 3)
    host = quantize(points, batch, voxel_size=0.3, batch_size=3).strided(Kernel.of(2, 2))
    values, found = torch.randn(host.rows, 4).double(), []
    for device in ("cpu", "cuda"):
        grid, own, clouds = host.to(device), points.flip(0).to(device), batch.flip(0).to(device)
        features = values.to(device).requires_grad_()
        with nullcontext() if waits else nothing_waits(device):
            out = operation(pcnn.SparseTensor(features, grid), own, clouds)
            (grad,) = torch.autograd.grad(out.square().sum(), features)
        found.append((out.detach().cpu(), grad.cpu()))
    for host_side, device_side in zip(*found, strict=True):
        assert host_side.any()
        torch.testing.assert_close(device_side, host_side)
