"""A convolution, its norm, a residual and ReLU in one call give what modules give one by one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn.models.blocks import ConvNorm, Layers, ResidualBlock
from pcnn.nn import Conv3d, ConvTranspose3d, Sequential
from tests.nn.fusing import joined, layer, recorded, separate, shaken, tensor
from tests.tolerance import RELATIVE_RMS, relative_rms

KINDS = ["3", "strided", "transposed", "1", "strided 1"]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
COPIES = [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]


def block_of(channels: int = 6, engine: Any = None) -> ResidualBlock:
    return shaken(ResidualBlock(4, channels, Layers(engine)))  # type: ignore[return-value]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_against_float64(kind: str, dtype: torch.dtype) -> None:
    bias = dtype in DTYPES[::2]
    engine, calls = recorded()
    block = layer(kind, bias=bias, engine=engine).to(dtype)
    x, sites = tensor(dtype=dtype), []
    if kind == "transposed":
        sites, grid = [x.geometry], x.geometry.strided(Conv3d(1, 1, 2, 2).kernel)
        x = pcnn.SparseTensor(torch.randn(grid.rows, 4).to(dtype), grid)
    with torch.no_grad():
        y = block(x, *sites)
    assert len(calls) == (kind != "1")
    assert y.features.dtype == dtype
    exact = copy.deepcopy(block).double()
    expected = separate(exact, x.replace(x.features.double()), *sites).features
    error, plain = relative_rms(y.features, expected), separate(block, x, *sites).features
    # a pointwise layer rounds scaled weights instead of the product; 1.2 is chance (float32)
    assert error <= (1.5 if kind == "1" else 1.2) * relative_rms(plain, expected) + 1e-15
    # one rounding of the result; of the weights and the shift too where the layer is pointwise
    assert error < (2 if kind == "1" else 1) * RELATIVE_RMS[dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("source", [tensor, joined])
@pytest.mark.parametrize("channels", [4, 6])
def test_a_block_against_float64(
    channels: int, source: Callable[..., pcnn.SparseTensor], dtype: torch.dtype
) -> None:
    engine, calls = recorded()
    block = block_of(channels, engine).to(dtype)
    x = source(dtype=dtype)
    with torch.no_grad():
        y = block(x)
    first, second = (call["epilogue"] for call in calls)
    assert (first.relu, first.residual, second.relu) == (True, None, True)
    assert second.residual is not None
    assert (calls[0]["skip"] is not None) == (source is joined)
    exact = copy.deepcopy(block).double()
    expected = separate(exact, x.replace(x.features.double())).features
    error = relative_rms(y.features, expected)
    assert error < 2 * RELATIVE_RMS[dtype]  # of two layers
    assert error <= 1.2 * relative_rms(separate(block, x).features, expected) + 1e-15


# --- what runs as it is written ----------------------------------------------------------------


class Doubled(Conv3d):
    def forward(self, x: pcnn.SparseTensor, sites: Any = None) -> pcnn.SparseTensor:
        y = super().forward(x, sites)
        return y.replace(2 * y.features)


class Clamped(nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(-1, 1)


OTHERS: dict[str, Callable[[], tuple[nn.Module, nn.Module]]] = {
    "a subclass": lambda: (Doubled(4, 6, 3), nn.BatchNorm1d(6)),
    "grouped and pointwise": lambda: (Conv3d(4, 6, 1, groups=2), nn.BatchNorm1d(6)),
    "a wrapped layer": lambda: (
        nn.utils.parametrizations.weight_norm(Conv3d(4, 6, 3)),
        nn.BatchNorm1d(6),
    ),
    "of the batch": lambda: (Conv3d(4, 6, 3), nn.BatchNorm1d(6, track_running_stats=False)),
    "a subclass of norms": lambda: (Conv3d(4, 6, 3), Clamped(6)),
    "a wrapped norm": lambda: (
        Conv3d(4, 6, 3),
        nn.utils.parametrize.register_parametrization(nn.BatchNorm1d(6), "weight", nn.Softplus()),
    ),
    "several": lambda: (Conv3d(4, 6, 3), nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5))),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
def test_other_layers_and_norms_run_as_they_are(
    make: Callable[[], tuple[nn.Module, nn.Module]],
) -> None:
    block, x = shaken(ConvNorm(*make())), joined()
    with torch.no_grad():
        y = block(x).features
    torch.testing.assert_close(y, separate(block, x).features)


# --- sequences ---------------------------------------------------------------------------------


def network(**arguments: Any) -> Sequential:
    net = Sequential(
        *(Conv3d(4, 8, 3, **arguments), nn.BatchNorm1d(8), nn.ReLU()),
        *(Conv3d(8, 6, 2, 2, **arguments), nn.BatchNorm1d(6)),
        *(ConvTranspose3d(6, 6, 2, 2, **arguments), nn.LayerNorm(6), nn.ReLU()),
        *(nn.Linear(6, 3), nn.BatchNorm1d(3)),
    )
    return shaken(net)  # type: ignore[return-value]


def test_a_convolution_its_norm_and_relu_are_one_product() -> None:
    engine, calls = recorded()
    net, x = network(engine=engine), tensor()
    expected = net(x).features.detach()
    calls.clear()
    with torch.no_grad():
        y = net(x).features
    done = [call["epilogue"] for call in calls]
    assert [(one.scale is not None, one.relu) for one in done] == [
        *((True, True), (True, False), (False, False))
    ]
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("position", [0, 1, 2, 4, 6, 9])
def test_hooks_in_a_sequence_fire(position: int, inner: bool) -> None:
    net, x, seen = network(), tensor(), []
    module = net[position]
    watched = module.module if inner and hasattr(module, "module") else module
    watched.register_forward_hook(lambda *args: seen.append(args))
    with torch.no_grad():
        y = net(x).features
    assert len(seen) == 1
    torch.testing.assert_close(y, net(x).features.detach())


def step(net: nn.Module, norm: nn.Module) -> None:
    with torch.enable_grad():
        net(tensor()).features.sum().backward()
    torch.optim.SGD(norm.parameters(), lr=0.5).step()


def swap(net: nn.Module, norm: nn.Module) -> None:
    for one in (*norm.parameters(), norm.running_mean, norm.running_var):
        one.data = one.data + 1  # unseen by torch
    net.eval()


CHANGES: dict[str, Callable[[Any, Any], object]] = {
    "load": lambda net, norm: norm.load_state_dict(nn.BatchNorm1d(6).state_dict()),
    "assign": lambda net, norm: norm.load_state_dict(nn.BatchNorm1d(6).state_dict(), assign=True),
    "step": step,
    "swap": swap,
    "train": lambda net, norm: net.train()(tensor()) and net.eval(),
    "in place": lambda net, norm: norm.running_var.mul_(2),
    "other eps": lambda net, norm: setattr(norm, "eps", 0.5),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(("make", "name"), [(network, "4.module"), (lambda: layer("3"), "norm")])
@torch.no_grad()
def test_changes_are_seen_and_those_of_a_copy_are_its_own(
    make: Callable[[], nn.Module], name: str, change: Callable[[Any, Any], object]
) -> None:
    net, x = make(), tensor()
    before = net(x).features
    for copied in COPIES:
        other = copied(net)
        assert torch.equal(other(x).features, before)
        change(other, other.get_submodule(name))
        after = other(x).features
        assert torch.equal(net(x).features, before)
        assert not torch.allclose(after, before)
        torch.testing.assert_close(after, separate(other, x).features)
        assert set(net.state_dict()) == set(other.state_dict())
