"""Layers in training as one autograd node, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn.models.blocks import ConvNorm, Layers, ResidualBlock
from pcnn.nn import Conv3d, Sequential, fused
from pcnn.ops.products import _Normalized
from tests.clouds import surface_grid
from tests.kernels.triton.conftest import DEVICE
from tests.tolerance import RELATIVE_RMS, relative_rms


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """The norms of CPU tensors run in the interpreter; the nodes that were made are counted."""
    made: list[object] = []

    def apply(*args: Any) -> Tensor:
        made.append(args)
        return _Normalized.apply(*args)

    monkeypatch.setattr("pcnn.ops.products._apply_normalized", apply)
    monkeypatch.setattr(fused, "kernels_serve", lambda x, dtype: dtype != torch.float64)
    return made


def conv_norm(layer: nn.Module, **settings: Any) -> ConvNorm:
    return ConvNorm(layer, nn.BatchNorm1d(6, **settings))


conv = partial(Conv3d, engine="reference", bias=False)
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "3": lambda: conv_norm(conv(4, 6, 3)),
    "grouped": lambda: conv_norm(conv(4, 6, 3, groups=2), momentum=None),
    "strided": lambda: conv_norm(conv(4, 6, 2, 2), affine=False),
    "all frozen": lambda: conv_norm(conv(4, 6, 3)).requires_grad_(False),
    "thin block": lambda: ResidualBlock(4, 4, Layers("reference")),
    "sequence": lambda: Sequential(conv(4, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), conv(6, 3, 1)),
}
NODES = {"thin block": 2}


def shaken(module: nn.Module) -> nn.Module:
    for part in module.modules():
        for name in ("weight", "bias") if isinstance(part, nn.BatchNorm1d) else ():
            tensor = getattr(part, name)
            if tensor is not None:
                tensor.data.uniform_(-0.5, 2)
    return module


def step(
    module: nn.Module, features: Tensor, grid: pcnn.VoxelGrid, *sites: Any
) -> dict[str, Tensor]:
    """Output, gradients and buffers of a step."""
    features = features.clone().requires_grad_()
    y = module(pcnn.SparseTensor(features, grid), *sites).features
    grad = torch.cos(torch.arange(y.numel(), device=y.device, dtype=torch.float64))
    y.backward(grad.view_as(y).to(y.dtype))
    found = {"out": y.detach(), "features": features.grad, **dict(module.named_buffers())}
    assert isinstance(found["features"], Tensor)
    trained = {name: own.grad for name, own in module.named_parameters() if own.requires_grad}
    return found | trained  # type: ignore


@pytest.mark.parametrize("autocast", [None, torch.float16], ids=str)
@pytest.mark.parametrize("kind", LAYERS)
def test_a_step_against_float64(
    kind: str, autocast: torch.dtype | None, nodes: list[object]
) -> None:
    module, grid = shaken(LAYERS[kind]()).to(DEVICE), surface_grid(60, batch_size=2).to(DEVICE)
    plain, exact = copy.deepcopy(module), copy.deepcopy(module).double()
    features = torch.randn(grid.rows, 4, device=DEVICE)
    with torch.autocast(DEVICE, autocast, enabled=autocast is not None):
        found = step(module, features, grid)
        assert len(nodes) == NODES.get(kind, 1)
        for part in plain.modules():
            part.register_forward_hook(lambda *_: None)
        one_by_one = step(plain, features, grid)
    assert len(nodes) == NODES.get(kind, 1)
    truth = step(exact, features.double(), grid)
    assert found.keys() == truth.keys()
    for name, value in found.items():
        assert value.dtype == one_by_one[name].dtype, name
        error, of_plain = (relative_rms(one[name], truth[name]) for one in (found, one_by_one))
        # a value near zero is on this side of ReLU or on that
        assert error <= 2 * of_plain + 20 * RELATIVE_RMS[torch.float32], name


def test_second_derivatives(nodes: list[object]) -> None:
    grid = surface_grid(40).to(DEVICE)
    values = torch.randn(grid.rows, 4, device=DEVICE)
    module = shaken(LAYERS["thin block"]()).to(DEVICE)
    found = []
    for own in (module, copy.deepcopy(module).double()):
        features = values.to(next(own.parameters()).dtype).requires_grad_()
        y = own(pcnn.SparseTensor(features, grid)).features
        (grad,) = torch.autograd.grad(y.square().sum(), features, create_graph=True)
        found.append(torch.autograd.grad(grad.square().sum(), [features, *own.parameters()]))
    assert len(nodes) == 2
    for value, truth in zip(*found, strict=True):
        assert relative_rms(value, truth) < 100 * RELATIVE_RMS[torch.float32]


def test_spare_rows_are_in_no_statistics(nodes: list[object]) -> None:
    module, grid = shaken(LAYERS["3"]()).to(DEVICE), surface_grid(60).to(DEVICE)
    count = torch.tensor([grid.rows - 7], dtype=torch.int32, device=DEVICE)
    counted = replace(grid, count=count, check=False)
    exact = copy.deepcopy(module).double()
    features = torch.randn(grid.rows, 4, device=DEVICE)
    found = step(module, features, counted)
    assert len(nodes) == 1
    # the plain norm knows of the count too
    for name, truth in step(exact, features.double(), counted).items():
        assert relative_rms(found[name], truth) < 20 * RELATIVE_RMS[torch.float32], name
    assert not found["out"][-7:].any()
