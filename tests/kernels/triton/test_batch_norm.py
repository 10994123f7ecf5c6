"""Batch norm in training, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from pcnn.kernels import batch_norm as batch_norm_kernels
from pcnn.kernels import batch_statistics as statistics_module
from pcnn.kernels.batch_norm import batch_norm, batch_norm_gradients
from pcnn.kernels.batch_statistics import RunningStatistics, batch_statistics
from tests.kernels.triton.conftest import DEVICE
from tests.tolerance import RELATIVE_RMS, relative_rms

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
NAN = float("nan")

#: Rows, of which there are so many, channels, dtype, ReLU, residual, affine, momentum.
CASES = [
    (2, None, 33, SINGLE, True, True, True, 0.1),
    (129, None, 96, HALF, True, True, True, None),
    (700, None, 33, BRAIN, False, True, True, 0.3),
    (300, 129, 40, HALF, True, True, True, 0.1),
    (300, 2, 64, SINGLE, True, False, True, None),
    (20, 1, 6, SINGLE, True, True, True, 0.1),
    (20, 0, 1, SINGLE, False, True, False, 0.1),
]


def modules(
    norm: nn.BatchNorm1d, y: Tensor, added: Tensor, grad: Tensor, residual: bool, relu: bool
) -> list[Tensor]:
    """Output and gradients of the modules; fewer than two rows by the running statistics."""
    y, added = y.requires_grad_(), added.requires_grad_()
    if len(y) > 1:
        out = norm(y)
    else:
        parts = norm.running_mean, norm.running_var, norm.weight, norm.bias
        out = nn.functional.batch_norm(y, *parts, eps=norm.eps)  # type: ignore[arg-type]
    out = out + added if residual else out
    out = out.relu() if relu else out
    inputs = [y, *([added] if residual else []), *norm.parameters()]
    return [out.detach(), *torch.autograd.grad(out, inputs, grad)]


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that a program has more blocks of rows than one."""
    cached = (
        statistics_module.row_chunks,
        batch_norm_kernels._kernels,
        statistics_module._kernels,
    )
    monkeypatch.setattr(statistics_module, "PROGRAMS", 4)
    for one in cached:
        one.cache_clear()
    yield
    for one in cached:
        one.cache_clear()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_norm_and_gradients_against_float64(case: tuple) -> None:  # type: ignore[type-arg]
    rows, there, channels, dtype, relu, residual, affine, momentum = case
    norm = nn.BatchNorm1d(channels, momentum=momentum, affine=affine).to(DEVICE)
    for tensor in (*norm.parameters(), norm.running_mean, norm.running_var):
        tensor.data.uniform_(0.5, 2)  # type: ignore[union-attr]
    norm.num_batches_tracked.fill_(3)  # type: ignore[union-attr]
    plain, wide = copy.deepcopy(norm), copy.deepcopy(norm).double()
    # means far from zero: sums of squares in float32 would lose the variance
    y, added, grad = (torch.randn(rows, channels, device=DEVICE) for _ in range(3))
    y = (y * 0.5 + 30 * torch.randn(channels, device=DEVICE)).to(dtype)
    added, grad = added.to(dtype), grad.to(dtype)
    number, count = rows if there is None else there, None
    if there is not None:
        count = torch.tensor([there], dtype=torch.int32, device=DEVICE)
        for matrix in (y, added, grad):
            matrix[there:] = NAN  # nothing may read them

    means = RunningStatistics(
        norm.running_mean, norm.running_var, norm.num_batches_tracked, momentum
    )
    found = batch_statistics(y, means, norm.eps, count)
    parts = found, norm.weight, norm.bias
    skip = added if residual else None
    out = batch_norm(y, *parts, skip, relu, count)
    kept = out if relu and residual else None
    grads = batch_norm_gradients(grad, y, kept, *parts, relu, residual, count)

    given = [matrix[:number] for matrix in (y, added, grad)]
    exact = modules(wide, *(matrix.double() for matrix in given), residual, relu)
    of_torch = modules(plain, *(matrix.clone() for matrix in given), residual, relu)
    results = [out, grads[0], *([grads[1]] if residual else [])]
    assert all(value.dtype == dtype for value in results)
    assert all(value[number:].eq(0).all() for value in results)
    results = [value[:number] for value in results] + list(grads[2:] if affine else [])
    for value, truth, other in zip(results, exact, of_torch, strict=True):
        error = relative_rms(value, truth)
        assert error <= max(RELATIVE_RMS[value.dtype], 2 * relative_rms(other, truth)) or not number
    for name, buffer in wide.named_buffers():
        assert relative_rms(norm.get_buffer(name), buffer) < 4 * RELATIVE_RMS[SINGLE], name


def test_two_runs_have_identical_bits_and_infinities_stay_in_their_channel() -> None:
    y, grad = torch.randn(2, 500, 40, device=DEVICE).half().unbind()
    y[7, 3] = float("inf")
    running = torch.zeros(40, device=DEVICE), torch.ones(40, device=DEVICE)
    runs = []
    for _ in range(2):
        found = batch_statistics(y, RunningStatistics(*running, None, None), 1e-5)
        out = batch_norm(y, found, None, None, relu=True)
        runs.append((found, out, *batch_norm_gradients(grad, y, None, found, None, None, True)))
    for one, other in zip(*runs, strict=True):
        assert one is other is None or one.isnan().equal(other.isnan())
        assert one is None or one.nan_to_num().equal(other.nan_to_num())
    assert runs[0][1][:, 3].isnan().all()
    assert not runs[0][1][:, [2, 4]].isnan().any()
