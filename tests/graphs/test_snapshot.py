"""Networks as they were: everything that changes what a graph would compute is seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from pcnn.graphs.snapshot import NetworkSnapshot


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 2)))


def of_weights(net: nn.Sequential) -> nn.Linear:
    found = net[0]
    assert isinstance(found, nn.Linear)
    return found


def moved(net: nn.Sequential) -> None:
    of_weights(net).weight.data = of_weights(net).weight.data.clone()


def stepped(net: nn.Sequential) -> None:
    with torch.no_grad():
        of_weights(net).weight.mul_(0.5)


def trained(net: nn.Sequential) -> None:
    net(torch.rand(5, 3))  # running statistics


def exchanged(net: nn.Sequential) -> None:
    net[2] = nn.Sequential(nn.Linear(4, 2))


def extended(net: nn.Sequential) -> None:
    net.append(nn.ReLU())


def shortened(net: nn.Sequential) -> None:
    del net[2]


def assigned(net: nn.Sequential) -> None:
    net.load_state_dict(network().state_dict(), assign=True)


def without_bias(net: nn.Sequential) -> None:
    of_weights(net).bias = None  # type: ignore[assignment]


def told(net: nn.Sequential) -> None:
    of_weights(net).scale = torch.rand(3)


def hooked(net: nn.Sequential) -> None:
    net[1].register_forward_hook(print)


CHANGES = [
    told,
    hooked,
    moved,
    stepped,
    trained,
    exchanged,
    extended,
    shortened,
    assigned,
    without_bias,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_seen(change: Callable[[nn.Sequential], None]) -> None:
    net = network()
    kept = NetworkSnapshot(net)
    assert kept.holds()
    change(net)
    assert not kept.holds()
    assert NetworkSnapshot(net).holds()


def test_calls_in_evaluation_and_modes_that_come_back_are_no_change() -> None:
    net = network()
    kept = NetworkSnapshot(net)
    net.eval()
    assert not kept.holds()
    net(torch.rand(5, 3))
    net.train().requires_grad_(False)
    assert kept.holds()


def test_without_values_steps_are_no_change() -> None:
    net = network()
    kept = NetworkSnapshot(net, values=False)
    stepped(net)
    trained(net)
    assert kept.holds()
    for change in (moved, exchanged, lambda net: net.requires_grad_(False)):
        change(net)
        assert not kept.holds()
        kept = NetworkSnapshot(net, values=False)
