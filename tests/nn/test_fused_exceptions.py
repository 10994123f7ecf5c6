from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pcnn
from pcnn.models.blocks import ConvNorm, ResidualBlock
from pcnn.nn import Conv3d, SparseConv3d
from tests.nn.fusing import joined, layer, recorded, separate, shaken, tensor


@pytest.mark.parametrize("module", ["conv", "norm"])
@pytest.mark.parametrize("where", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_fire(module: str, where: str) -> None:
    engine, calls = recorded()
    block, x, seen = layer("3", engine=engine, bias=False), tensor(), []
    with torch.no_grad():
        expected = block(x).features
        assert calls.pop()["epilogue"] is not None
        getattr(block.get_submodule(module), where)(lambda *args: seen.append(args))
        y = block(x).features
    assert len(seen) == 1
    assert calls.pop()["epilogue"] is None
    torch.testing.assert_close(y, expected)


def test_hooks_of_all_modules_fire() -> None:
    block, x, seen = shaken(ResidualBlock(4, 6, Conv3d, nn.BatchNorm1d)), tensor(), []
    handle = nn.modules.module.register_module_forward_hook(lambda m, *_: seen.append(m))
    try:
        with torch.no_grad():
            block(x)
    finally:
        handle.remove()
    assert set(seen) == set(block.modules())


class Doubled(Conv3d):
    def forward(self, x: pcnn.SparseTensor, sites: Any = None) -> pcnn.SparseTensor:
        y = super().forward(x, sites)
        return y.replace(2 * y.features)


class Named(Conv3d):
    """A layer that computes what its base does."""


@pytest.mark.parametrize("kind", [Named, SparseConv3d])
def test_subclasses_with_the_same_forward_are_fused(kind: type[Conv3d]) -> None:
    engine, calls = recorded()
    block, x = shaken(ConvNorm(kind(4, 6, 3, engine=engine), nn.BatchNorm1d(6))), tensor()
    with torch.no_grad():
        y = block(x)
    assert calls.pop()["epilogue"].relu
    alone = separate(block, x)
    assert y.geometry is alone.geometry
    torch.testing.assert_close(y.features, alone.features)


class Dense(nn.Module):
    """A layer that is none of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: pcnn.SparseTensor) -> pcnn.SparseTensor:
        return x.replace(self.linear(x.features))


OTHERS = {
    "a subclass": lambda: Doubled(4, 6, 3),
    "a foreign layer": Dense,
    "grouped and pointwise": lambda: Conv3d(4, 6, 1, groups=2),
    "a wrapped layer": lambda: torch.nn.utils.parametrizations.weight_norm(Conv3d(4, 6, 3)),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
def test_other_layers_run_as_they_are(make: Callable[[], nn.Module]) -> None:
    block, x = shaken(ConvNorm(make(), nn.BatchNorm1d(6))), joined()
    with torch.no_grad():
        y = block(x).features
    torch.testing.assert_close(y, separate(block, x).features)


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(6, track_running_stats=False),
        nn.InstanceNorm1d(6),
        nn.LayerNorm(6),
        nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5)),
        nn.Identity(),
    ],
    ids=lambda norm: type(norm).__name__,
)
def test_other_norms_run_as_they_are(norm: nn.Module) -> None:
    block, x = ConvNorm(Conv3d(4, 6, 3), norm).eval(), tensor()
    with torch.no_grad():
        assert torch.equal(block(x).features, separate(block, x).features)
