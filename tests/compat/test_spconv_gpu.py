"""`pcnn.compat.spconv` on a GPU against float64 on the host."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

import pcnn.compat.spconv.pytorch as spconv
from tests.clouds import surface_grid
from tests.tolerance import FLOAT16_CHOICES, LIKE_EAGER, relative_rms

pytestmark = pytest.mark.gpu


def network() -> spconv.SparseSequential:
    return spconv.SparseSequential(
        spconv.SubMConv3d(8, 16, 3, indice_key="a"),
        torch.nn.ReLU(),
        spconv.SparseConv3d(16, 32, 3, 2, 1, indice_key="d"),
        spconv.SubMConv3d(32, 32, 3),
        spconv.SparseInverseConv3d(32, 16, 3, indice_key="d"),
        spconv.SparseConv3d(16, 16, 3),
        spconv.SparseMaxPool3d(2),
        spconv.SparseConvTranspose3d(16, 8, 2, 2),
    )


def tensor(many: int, ordered: bool, dtype: torch.dtype) -> spconv.SparseConvTensor:
    coords = surface_grid(many, batch_size=3).coords
    coords[:, 1:] -= coords[:, 1:].amin(0)
    draw = torch.Generator().manual_seed(0)
    if not ordered:
        coords = coords[torch.randperm(len(coords), generator=draw)]
    shape = (coords[:, 1:].amax(0) + 1).tolist()
    features = torch.randn(len(coords), 8, generator=draw).to(dtype)
    return spconv.SparseConvTensor(features.requires_grad_(), coords, shape, 3)


def on(device: str, x: spconv.SparseConvTensor, dtype: torch.dtype) -> spconv.SparseConvTensor:
    features = x.features.detach().to(device, dtype).requires_grad_()
    return spconv.SparseConvTensor(features, x.indices.to(device), x.spatial_shape, x.batch_size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("ordered", [True, False])
def test_values_and_gradients(ordered: bool, dtype: torch.dtype) -> None:
    net, x = network().to(dtype), tensor(4000, ordered, dtype)
    exact, mine = copy.deepcopy(net).double(), copy.deepcopy(net).cuda()

    def computed(layers: spconv.SparseSequential, given: spconv.SparseConvTensor) -> list[Tensor]:
        out = layers(given)
        leaves = [given.features, *layers.parameters()]
        grads = torch.autograd.grad(out.features.double().square().sum(), leaves)
        return [out.indices, out.features, *grads]

    wanted = computed(exact, on("cpu", x, torch.float64))
    found = computed(mine, on("cuda", x, dtype))
    assert torch.equal(found[0].cpu(), wanted[0])
    assert relative_rms(found[1].cpu(), wanted[1]) < LIKE_EAGER[dtype]
    limit = LIKE_EAGER[dtype] if dtype == torch.float32 else FLOAT16_CHOICES
    for own, right in zip(found[2:], wanted[2:], strict=True):
        assert relative_rms(own.cpu(), right) < limit
