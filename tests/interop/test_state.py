"""Whole networks, by structure."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from pcnn.interop import MINKOWSKI, SPCONV, load_state, state_of
from pcnn.models import MinkUNet42


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    made = MinkUNet42(4, 3, width=0.125)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.running_mean)
    return made


@pytest.mark.parametrize("layout", [MINKOWSKI, SPCONV], ids=lambda one: one.package)
def test_a_network_comes_back_from_another_layout(layout) -> None:  # type: ignore[no-untyped-def]
    source, target = network(0), network(1)
    state = state_of(source, layout)
    assert f"stem.0.conv.{layout.parameter}" in state
    # names of another package's modules: only the order of layers tells them
    names = {name.rpartition(".")[0]: None for name in state}
    others = {name: f"layer{number}" for number, name in enumerate(names)}
    renamed = OrderedDict(
        (f"{others[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}", value)
        for name, value in state.items()
    )
    load_state(target, renamed, layout)
    for name, value in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], value), name
    load_state(network(2), dict(reversed(renamed.items())), layout, others)


def test_what_does_not_fit_is_named_and_changes_nothing() -> None:
    made = network(0)
    before = {name: value.clone() for name, value in made.state_dict().items()}
    state = state_of(network(1), MINKOWSKI)
    with pytest.raises(ValueError, match="layers with parameters, the state of MinkowskiEngine"):
        load_state(made, {n: v for n, v in state.items() if not n.startswith("head")}, MINKOWSKI)
    with pytest.raises(ValueError, match=r"stem.0.conv, from stem.0.conv: it has no kernel"):
        load_state(made, made.state_dict(), MINKOWSKI)
    wrong = state | {"head.module.weight": torch.zeros(9, 9)}
    with pytest.raises(ValueError, match=r"head.module.* weight is \[9, 9\], ours \[3, 12\]"):
        load_state(made, wrong, MINKOWSKI)
    with pytest.raises(ValueError, match="has no layer nowhere"):
        load_state(made, state, MINKOWSKI, {"head.module": "nowhere"})
    with pytest.raises(ValueError, match="ours has no scale"):
        load_state(made, state | {"head.module.scale": torch.zeros(1)}, MINKOWSKI)
    for name, value in made.state_dict().items():
        assert torch.equal(value, before[name])
    state["head.module.bias"] = state["head.module.bias"][None]  # as MinkowskiEngine keeps it
    load_state(made, state, MINKOWSKI)
