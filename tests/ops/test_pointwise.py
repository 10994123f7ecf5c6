"""A product of matrices whose weight gradient is as wide as the weight."""

import itertools

import pytest
import torch

from pcnn.nn import Conv3d
from pcnn.nn.conv import linear
from pcnn.ops.pointwise import pointwise
from pcnn.tensor import SparseTensor
from tests.clouds import surface_grid
from tests.tolerance import RELATIVE_RMS, SUMS_ON_TENSOR_CORES, relative_rms

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_equal_float64(device: str, dtype: torch.dtype) -> None:
    x = torch.randn(300, 12, device=device).to(dtype).requires_grad_()
    weight = torch.randn(12, 20, device=device).to(dtype).float().requires_grad_()
    grad = torch.randn(300, 20, device=device).to(dtype)
    out = pointwise(x, weight, dtype)
    grad_x, grad_weight = torch.autograd.grad(out, (x, weight), grad)
    assert out.dtype == dtype
    assert (grad_x.dtype, grad_weight.dtype) == (dtype, torch.float32)
    wide = x.double(), weight.double(), grad.double()
    assert relative_rms(out, wide[0] @ wide[1]) < RELATIVE_RMS[dtype]
    assert relative_rms(grad_x, wide[2] @ wide[1].t()) < RELATIVE_RMS[dtype]
    sums = SUMS_ON_TENSOR_CORES if device == "cuda" else RELATIVE_RMS[torch.float32]
    assert relative_rms(grad_weight, wide[0].t() @ wide[2]) < sums


def test_a_frozen_side_leaves_the_other_its_gradient() -> None:
    x, weight, grad = torch.randn(9, 4).half(), torch.randn(4, 6), torch.randn(9, 6).half()
    both = torch.autograd.grad(
        pointwise(x.requires_grad_(), weight.requires_grad_(), torch.float16), (x, weight), grad
    )
    (of_x,) = torch.autograd.grad(pointwise(x, weight.detach(), torch.float16), x, grad)
    (of_weight,) = torch.autograd.grad(pointwise(x.detach(), weight, torch.float16), weight, grad)
    assert torch.equal(of_x, both[0])
    assert torch.equal(of_weight, both[1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_groups_equal_a_loop_over_them(device: str, rows: int, dtype: torch.dtype) -> None:
    # every other channel of a wider tensor, as no view of groups could be made of
    x = torch.randn(rows, 24, device=device).to(dtype)[:, ::2].requires_grad_()
    layer = Conv3d(12, 6, 1, groups=3, bias=False).to(device)
    weight = layer.weight.detach().to(dtype).double()[0]  # [4, 6]
    with torch.no_grad():
        layer.weight.copy_(weight)
    layer = layer.to(torch.float64 if dtype == torch.float64 else torch.float32)
    out = linear(x, layer.weight[0], None, groups=3)
    grad = torch.randn(rows, 6, device=device).to(dtype)
    found = torch.autograd.grad(out, (x, layer.weight), grad)
    wide = x.detach().double().requires_grad_(), weight.requires_grad_()
    parts = zip(wide[0].split(4, 1), wide[1].split(2, 1), strict=True)
    expected = torch.cat([a @ b for a, b in parts], dim=1)
    grads = torch.autograd.grad(expected, wide, grad.double())
    assert out.dtype == dtype
    for value, truth in ((out, expected), (found[0], grads[0]), (found[1][0], grads[1])):
        assert value.shape == truth.shape
        bound = RELATIVE_RMS[value.dtype]
        if device == "cuda" and value.dtype == torch.float32:
            bound = SUMS_ON_TENSOR_CORES
        assert relative_rms(value, truth) < bound or not rows


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("operands", "own"),
    [(torch.float16, torch.float64), (torch.float64, torch.float32)],
    ids=["half-to-double", "double-to-float"],
)
def test_sums_are_as_wide_as_the_widest(
    device: str, operands: torch.dtype, own: torch.dtype
) -> None:
    x, grad = torch.randn(2, 300, 6, device=device).to(operands)
    weight = torch.randn(6, 6, device=device, dtype=own, requires_grad=True)
    pointwise(x, weight, operands).backward(grad)
    assert weight.grad.dtype == own
    expected = (x.double().t() @ grad.double()).to(own)
    torch.testing.assert_close(weight.grad, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("own", [torch.float16, torch.float32])
def test_a_gradient_over_many_rows_loses_none(own: torch.dtype) -> None:
    x, grad = torch.randn(2, 32017, 64, device="cuda").half()
    weight = torch.randn(64, 64, device="cuda").to(own).requires_grad_()
    pointwise(x, weight, torch.float16).backward(grad)
    assert relative_rms(weight.grad, x.double().t() @ grad.double()) < RELATIVE_RMS[torch.float16]


@pytest.mark.parametrize("device", DEVICES)
def test_backward_inside_autocast_rounds_no_sum(device: str) -> None:
    x, weight = torch.randn(300, 12, device=device), torch.randn(12, 20, device=device)
    grads = []
    for inside in (False, True):
        own = weight.clone().requires_grad_()
        with torch.autocast(device, torch.bfloat16):
            out = pointwise(x, own, torch.bfloat16)
        with torch.autocast(device, torch.bfloat16, enabled=inside):
            out.backward(torch.ones_like(out))
        grads.append(own.grad)
    assert torch.equal(*grads)


@pytest.mark.parametrize("device", DEVICES)
def test_a_gradient_beyond_float16_stays_finite(device: str) -> None:
    grid = surface_grid(400).to(device)
    layer = Conv3d(8, 8, 1, bias=False).to(device)
    features = torch.full((grid.rows, 8), 30.0, device=device)
    with torch.autocast(device, torch.float16):
        out = layer(SparseTensor(features, grid)).features
    assert out.dtype == torch.float16
    out.backward(torch.full_like(out, 30.0))
    assert layer.weight.grad.dtype == torch.float32
    expected = torch.full_like(layer.weight.grad, 900.0 * grid.rows)  # far beyond 65504
    torch.testing.assert_close(layer.weight.grad, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("dtype", "device"),
    [(torch.float64, "cpu"), *itertools.product((torch.float16, torch.bfloat16), DEVICES[:1])],
)
def test_second_derivatives(dtype: torch.dtype, device: str) -> None:
    x = torch.randn(40, 6, device=device).to(dtype).requires_grad_()
    weight = torch.randn(6, 5, device=device, requires_grad=True)  # narrower than float64
    out = pointwise(x, weight, dtype)
    (grad_weight,) = torch.autograd.grad(out.double().square().sum(), weight, create_graph=True)
    (found,) = torch.autograd.grad(grad_weight.square().sum(), x)
    wide_x, wide = x.detach().double().requires_grad_(), weight.detach().to(dtype).double()
    wide.requires_grad_()
    (expected_grad,) = torch.autograd.grad((wide_x @ wide).square().sum(), wide, create_graph=True)
    (expected,) = torch.autograd.grad(expected_grad.square().sum(), wide_x)
    # every intermediate result is rounded, to single precision where the weight has it
    rounded = torch.float32 if dtype == torch.float64 else dtype
    assert relative_rms(found, expected) < 4 * RELATIVE_RMS[rounded]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_narrow_weights_are_rounded_once(dtype: torch.dtype) -> None:
    layer, grid = Conv3d(8, 8, 1).to(dtype), surface_grid(6000)
    x, grad = torch.randn(2, grid.rows, 8).to(dtype)
    layer(SparseTensor(x, grid)).features.backward(grad)
    assert layer.weight.grad.dtype == dtype
    expected = (x.double().t() @ grad.double())[None]
    assert relative_rms(layer.weight.grad, expected) < RELATIVE_RMS[dtype]
