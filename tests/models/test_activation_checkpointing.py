"""Blocks that are computed again in backward give the same gradients and running statistics."""

from __future__ import annotations

import copy
from collections.abc import Collection

import pytest
import torch
from torch import Tensor, nn

from pcnn import models
from pcnn.models import blocks
from pcnn.models.blocks import ResidualBlock, checkpoint_activations
from pcnn.ops import from_coordinates
from pcnn.tensor import SparseTensor


def cloud(seed: int = 0) -> SparseTensor:
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randint(0, 12, (300, 4), generator=generator)
    cells[:, 0] = cells[:, 0] % 2
    features = torch.randn(300, 4, generator=generator, dtype=torch.float64)
    return from_coordinates(cells, features)


def step(net: nn.Module) -> tuple[list[Tensor], dict[str, Tensor]]:
    net(cloud()).features.square().mean().backward()
    gradients = [one.grad.clone() for one in net.parameters() if one.grad is not None]
    return gradients, {name: value.clone() for name, value in net.named_buffers()}


@pytest.mark.parametrize("levels", [(0,), (1, 3), (0, 1, 2, 3, 4)])
def test_gradients_and_statistics_are_the_same(
    monkeypatch: pytest.MonkeyPatch, levels: Collection[int]
) -> None:
    torch.manual_seed(0)
    net = models.MinkUNet42(4, 3, width=0.125).double()
    other = copy.deepcopy(net)
    found = checkpoint_activations(other, levels)
    assert found == 16
    again: list[int] = []
    unmoved = blocks.unmoved_statistics

    def counted(module: nn.Module) -> object:
        again.append(1)
        return unmoved(module)

    monkeypatch.setattr(blocks, "unmoved_statistics", counted)
    gradients, buffers = step(net)
    mine, statistics = step(other)
    # encoder blocks lie on levels 1 to 4, those of the decoder on 3 to 0
    assert len(again) == sum({0: 2, 4: 2}.get(level, 4) for level in levels)
    for one, two in zip(gradients, mine, strict=True):
        assert torch.equal(one, two)
    assert all(torch.equal(buffers[name], statistics[name]) for name in buffers)
    assert net.state_dict().keys() == other.state_dict().keys()
    with torch.no_grad():
        assert torch.equal(net.eval()(cloud(1)).features, other.eval()(cloud(1)).features)


def test_a_copy_runs_its_own_blocks() -> None:
    net = models.MinkUNet42(4, 3, width=0.125)
    checkpoint_activations(net, [0])
    twin = copy.deepcopy(net)
    for block in (module for module in twin.modules() if isinstance(module, ResidualBlock)):
        assert block.__dict__["forward"].block is block
