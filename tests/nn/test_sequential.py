import copy
from typing import Any

import pytest
import torch
from torch import nn

from pcnn.nn import Conv3d, ConvTranspose3d, Sequential
from tests.nn.fusing import recorded, shaken, tensor


def network(**arguments: Any) -> Sequential:
    net = Sequential(
        Conv3d(4, 8, 3, **arguments),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        Conv3d(8, 6, 2, 2, **arguments),
        nn.BatchNorm1d(6),
        ConvTranspose3d(6, 6, 2, 2, **arguments),
        nn.LayerNorm(6),
        nn.ReLU(),
        nn.Linear(6, 3),
        nn.BatchNorm1d(3),
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
    assert [one.scale is not None for one in done] == [True, True, False]
    assert [one.relu for one in done] == [True, False, False]
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("position", [0, 1, 2, 4, 6, 9])
def test_hooks_fire(position: int, inner: bool) -> None:
    net, x, seen = network(), tensor(), []
    module = net[position]
    watched = module.module if inner and hasattr(module, "module") else module
    watched.register_forward_hook(lambda *args: seen.append(args))
    with torch.no_grad():
        y = net(x).features
    assert len(seen) == 1
    torch.testing.assert_close(y, net(x).features.detach())


def test_changes_copies_and_modes() -> None:
    net, x = network(), tensor()
    with torch.no_grad():
        before = net(x).features
        other = copy.deepcopy(net)
        other[1].module.weight.mul_(2)
        after = other(x).features
        assert torch.equal(net(x).features, before)
        other[1].module.weight.data.mul_(2)  # unseen by torch
        last = other.eval()(x).features
    assert not torch.allclose(before, after)
    torch.testing.assert_close(last, other(x).features.detach())
    assert set(net.state_dict()) == set(other.state_dict())


def test_training_without_gradients_updates_the_statistics() -> None:
    net, x = network().train(), tensor()
    other = copy.deepcopy(net)
    expected = other(x).features
    with torch.no_grad():
        assert torch.equal(net(x).features, expected)
    assert torch.equal(net[1].module.running_mean, other[1].module.running_mean)
