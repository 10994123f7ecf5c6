"""Modules of torch on sparse tensors, joins of channels, and norms of any number of rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pcnn
from pcnn.nn import Conv3d, Sequential, normalize
from pcnn.rowwise import POINTWISE as POINTWISE_FUNCTIONS
from tests.nn.fusing import tensor

MODULES = (
    *(nn.Dropout(0), nn.ELU(), nn.GELU(), nn.GLU(), nn.Hardswish()),
    *(nn.Hardtanh(), nn.Identity(), nn.LayerNorm(4), nn.LeakyReLU(), nn.Linear(4, 3)),
    *(nn.LogSoftmax(-1), nn.Mish(), nn.PReLU(), nn.RMSNorm(4), nn.ReLU()),
    *(nn.ReLU6(), nn.SiLU(), nn.Sigmoid(), nn.Softmax(1), nn.Softplus()),
    *(nn.Tanh(), nn.BatchNorm1d(4)),
)
#: Those that a loop over names cannot call.
CALLS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, dim=-1),
    "clamp": lambda x: torch.clamp(x, min=0.5),
    "pow": lambda x: torch.pow(x, 2),
    "power": lambda x: x**2,
    "abs": abs,
}
REFUSED: tuple[Callable[[Any], Any], ...] = (
    *(nn.Softmax(0), nn.LayerNorm((50, 4)), nn.MaxPool1d(2), nn.Dropout1d()),
    lambda x: torch.cat([x, x]),
    lambda x: torch.matmul(torch.eye(len(x)), x),
    lambda x: torch.softmax(x, 0),
    lambda x: torch.pow(x, torch.ones(len(x))),
    lambda x: torch.sort(x),
)


def test_what_acts_on_rows_takes_it_as_it_is() -> None:
    x = tensor(50)
    positive = x.replace(x.features.abs() + 1)
    functions = {
        name: getattr(torch, name)
        for name in sorted(one.__name__ for one in POINTWISE_FUNCTIONS)
        if getattr(torch, name, None) in POINTWISE_FUNCTIONS and name not in ("prelu", "clamp")
    }
    assert len(functions) > 10
    for call in (*MODULES, *functions.values(), *CALLS.values()):
        y = call(positive)
        assert y.geometry is x.geometry
        assert torch.equal(y.features, call(positive.features)), call
    assert torch.equal((positive**x).features, positive.features**x.features)
    for call in REFUSED:
        with pytest.raises(TypeError, match="takes no SparseTensor"):
            call(x)


def test_a_sequence_of_torch_trains_as_ours_does() -> None:
    x = tensor(50)
    layers = Conv3d(4, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), Conv3d(8, 8, 2, 2), nn.GELU()
    own, theirs = Sequential(*copy.deepcopy(layers)), nn.Sequential(*layers)
    assert set(own.state_dict()) == {
        name.replace("1.", "1.module.") for name in theirs.state_dict()
    }
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(own))
    assert any(isinstance(m, nn.SyncBatchNorm) for m in synced.modules())
    pcnn.plan(theirs, x.geometry)
    y, expected = theirs(x), own(x)
    assert y.geometry is expected.geometry
    torch.testing.assert_close(y.features, expected.features)
    for features in (y.features, expected.features):
        features.square().sum().backward()
    for a, b in zip(theirs.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    for a, b in zip(theirs.buffers(), own.buffers(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("n", [0, 1, 9])
def test_norms_train_on_clouds_that_have_no_variance(n: int) -> None:
    norm, plain = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    norm.running_mean.fill_(3.0)  # type: ignore[union-attr]
    x = torch.randn(n, 4, requires_grad=True)
    y = normalize(norm, x)
    moved = n > 1
    torch.testing.assert_close(y, plain(x) if moved else (x - 3) / (1 + norm.eps) ** 0.5)
    y.sum().backward()
    assert norm.running_mean is not None
    assert bool((norm.running_mean != 3).all()) == moved
    assert int(norm.num_batches_tracked) == moved  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_spare_rows_are_in_no_statistics(options: dict[str, Any], dtype: torch.dtype) -> None:
    plain = nn.BatchNorm1d(3, **options)
    if dtype == torch.float64:
        plain.double()
    for parameter in plain.parameters():
        nn.init.normal_(parameter)
    counted = copy.deepcopy(plain)
    close = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {}
    for rows in (5, 2):
        features = (torch.randn(rows, 3) * 3 + 1).to(dtype).requires_grad_()
        spare = torch.full((4, 3), torch.inf, dtype=dtype)
        padded = torch.cat([features.detach(), spare]).requires_grad_()
        expected = plain(features)
        found = normalize(counted, padded, torch.tensor([rows], dtype=torch.int32))
        assert found.dtype == expected.dtype
        assert not found[rows:].any()
        torch.testing.assert_close(found[:rows], expected, **close)
        weights = torch.randn(rows, 3).to(dtype)
        (expected * weights).sum().backward()
        (found[:rows] * weights).sum().backward()
        assert padded.grad is not None
        assert not padded.grad[rows:].any()
        torch.testing.assert_close(padded.grad[:rows], features.grad, **close)
        for own, other in zip(counted.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(own, other, **close)
    for one, other in zip(counted.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, **close)
    count = torch.tensor([2], dtype=torch.int32)
    features = torch.randn(4, 3).to(plain.eval().weight.dtype if plain.affine else torch.float32)
    if options.get("track_running_stats", True) and plain.affine:  # rows alone in evaluation
        torch.testing.assert_close(normalize(plain, features, count), plain(features))
