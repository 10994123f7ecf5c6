"""Derivatives on maps whose slots hold several inputs."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from pcnn.dataflows import Dataflow, Reference
from pcnn.ops import convolution
from pcnn.ops.conformance_cases import random_map
from tests.engines import SEVERAL_PER_SLOT
from tests.tolerance import RELATIVE_RMS, relative_rms

flows = pytest.mark.parametrize("dataflow", SEVERAL_PER_SLOT, ids=lambda d: d.name)


@flows
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("symmetric", "groups"), [(False, 1), (True, 2)])
def test_first_and_second_derivatives(
    dataflow: Dataflow, transposed: bool, symmetric: bool, groups: int
) -> None:
    kernel_map = random_map(6, 6 if symmetric else 9, 3, 30, symmetric)
    kernel_map = kernel_map.transpose() if transposed else kernel_map
    x = torch.randn(kernel_map.n_in, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 4 // groups, 2, dtype=torch.float64, requires_grad=True)

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return convolution(x, weight, kernel_map, dataflow, groups=groups)

    assert gradcheck(run, (x, weight))
    assert gradgradcheck(run, (x, weight))


@flows
def test_half_precision_gradients_equal_float64(dataflow: Dataflow) -> None:
    kernel_map = random_map(90, 90, 27, 700, symmetric=True)
    x, weight = torch.randn(90, 8).half(), torch.randn(27, 8, 6).half()
    toward = torch.randn(90, 6).half()

    def gradients(flow: Dataflow, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        rows, matrices = (t.to(dtype).requires_grad_() for t in (x, weight))
        convolution(rows, matrices, kernel_map, flow).backward(toward.to(dtype))
        assert rows.grad is not None
        assert matrices.grad is not None
        return rows.grad, matrices.grad

    exact = gradients(Reference(), torch.float64)
    for grad, expected in zip(gradients(dataflow, torch.float16), exact, strict=True):
        assert relative_rms(grad, expected) < RELATIVE_RMS[torch.float16]


def test_no_triplets() -> None:
    for flow in SEVERAL_PER_SLOT:
        kernel_map = random_map(0, 4, 8, 0)
        x, weight = torch.zeros(0, 3, requires_grad=True), torch.randn(8, 3, 2, requires_grad=True)
        out = convolution(x, weight, kernel_map, flow)
        out.sum().backward()
        assert out.tolist() == [[0, 0]] * 4
        assert weight.grad is not None
        assert not weight.grad.any()
