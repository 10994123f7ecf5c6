"""Networks as they were: everything that changes what a graph would compute is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pcnn.graphs.snapshot import NetworkSnapshot


def network() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 2)))


def moved(net: Any) -> None:
    net[0].weight.data = net[0].weight.data.clone()


def exchanged(net: Any) -> None:
    net[2] = nn.Sequential(nn.Linear(4, 2))


def stepped(net: Any) -> None:
    with torch.no_grad():
        net[0].weight.mul_(0.5)


def trained(net: Any) -> None:
    net(torch.rand(5, 3))  # running statistics


CHANGES: dict[str, Callable[[Any], object]] = {
    "told": lambda net: setattr(net[0], "scale", torch.rand(3)),
    "hooked": lambda net: net[1].register_forward_hook(print),
    "moved": moved,
    "stepped": stepped,
    "trained": trained,
    "exchanged": exchanged,
    "extended": lambda net: net.append(nn.ReLU()),
    "shortened": lambda net: net.pop(2),
    "assigned": lambda net: net.load_state_dict(network().state_dict(), assign=True),
    "without bias": lambda net: setattr(net[0], "bias", None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(change: Callable[[Any], object]) -> None:
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
