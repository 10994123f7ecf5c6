"""A product of matrices whose weight gradient is as wide as the weight."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradgradcheck

from pcnn.nn import Conv3d
from pcnn.nn.conv import linear
from pcnn.ops.products import PointwiseProducts, mvmr, pointwise
from pcnn.tensor import SparseTensor
from tests.clouds import surface_grid
from tests.tolerance import RELATIVE_RMS, SUMS_ON_TENSOR_CORES, relative_rms

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def by_groups(x: Tensor, weight: Tensor, groups: int) -> Tensor:
    parts = zip(x.chunk(groups, 1), weight.chunk(groups, 1), strict=True)
    return torch.cat([a @ b for a, b in parts], dim=1)


@devices
@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "own"),
    [
        *((HALF, SINGLE), (BRAIN, SINGLE), (SINGLE, SINGLE), (DOUBLE, DOUBLE)),
        *((HALF, HALF), (BRAIN, BRAIN), (HALF, DOUBLE), (DOUBLE, SINGLE)),
    ],
    ids=str,
)
def test_output_and_gradients_equal_float64(
    device: str, rows: int, groups: int, dtype: torch.dtype, own: torch.dtype
) -> None:
    # every other channel of a wider tensor, as no view of groups could be made of
    x = torch.randn(rows, 24, device=device).to(dtype)[:, ::2].requires_grad_()
    weight = torch.randn(12 // groups, 6, device=device).to(dtype).to(own).requires_grad_()
    grad = torch.randn(rows, 6, device=device).to(dtype)
    wide = [t.detach().double().requires_grad_() for t in (x, weight)]
    truth = by_groups(*wide, groups)
    truths = truth, *torch.autograd.grad(truth, wide, grad.double())
    out = pointwise(x, weight, dtype, groups)
    found = out, *torch.autograd.grad(out, (x, weight), grad)
    for value, wanted, kind in zip(found, truths, (dtype, dtype, own), strict=True):
        assert (value.dtype, value.shape) == (kind, wanted.shape)
        bound = RELATIVE_RMS[kind]
        if device == "cuda" and kind == SINGLE:
            bound = SUMS_ON_TENSOR_CORES
        assert relative_rms(value, wanted) < bound or not rows
    for frozen in (0, 1):  # a frozen side leaves the other its gradient
        sides = [t.detach() if n == frozen else t for n, t in enumerate((x, weight))]
        (one,) = torch.autograd.grad(pointwise(*sides, dtype, groups), sides[1 - frozen], grad)
        assert one.dtype == sides[1 - frozen].dtype
        assert relative_rms(one, found[2 - frozen]) < RELATIVE_RMS[dtype] or not rows


@devices
def test_a_layer_keeps_gradients_beyond_float16(device: str) -> None:
    grid = surface_grid(400).to(device)
    layer = Conv3d(8, 8, 1, bias=False).to(device)
    features = torch.full((grid.rows, 8), 30.0, device=device)
    with torch.autocast(device, HALF):
        out = layer(SparseTensor(features, grid)).features
    assert out.dtype == HALF
    out.backward(torch.full_like(out, 30.0))
    assert layer.weight.grad.dtype == SINGLE
    expected = torch.full_like(layer.weight.grad, 900.0 * grid.rows)  # far beyond 65504
    torch.testing.assert_close(layer.weight.grad, expected, rtol=1e-6, atol=0)
    grouped = Conv3d(12, 6, 1, groups=3, bias=False).to(device)
    x = torch.randn(9, 12, device=device)
    found = linear(x, grouped.weight[0], None, groups=3)
    torch.testing.assert_close(found, by_groups(x, grouped.weight[0], 3))


@pytest.mark.parametrize("groups", [1, 3])
def test_second_derivatives(groups: int) -> None:
    sides = torch.randn(7, 6).double(), torch.randn(6 // groups, 3).double()

    def run(x: Tensor, weight: Tensor) -> Tensor:
        return mvmr(x, weight, PointwiseProducts(DOUBLE, groups), False, DOUBLE)

    assert gradgradcheck(run, [one.requires_grad_() for one in sides])
