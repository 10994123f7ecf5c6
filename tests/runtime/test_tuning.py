"""Layers get the settings with which the network is quickest, and right."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn.dataflows import Reference
from pcnn.maps import SortedSearch
from pcnn.nn.conv import convolutions
from pcnn.ops import Engine
from pcnn.ops.engine_settings import EngineSettings, LayerSizes, Parts
from pcnn.runtime import timing
from pcnn.runtime.observed import sparse_of
from tests.clouds import surface_grid


@dataclass(frozen=True)
class Way(Reference):
    """Right after some time, or in no time wrong: zeros, what is not written, or an error."""

    way: str = "slow"
    deterministic: bool = True

    def forward(self, *args: Any) -> Tensor:
        if self.way == "raises":  # compilers have classes of their own
            raise Exception("out of resources: shared memory")
        found = super().forward(*args)
        if self.way in ("zeros", "nan"):
            return torch.full_like(found, float(self.way.replace("zeros", "0")))
        timing.time.perf_counter(0.01 if self.way == "slow" else 0.001)  # of the made-up clock
        return found


@dataclass(frozen=True)
class Choices(EngineSettings):
    """Settings of a made-up engine: ways to compute a layer."""

    way: str = "slow"

    def parts(self) -> Parts:
        return SortedSearch(), Way(way=self.way, deterministic=self.way != "quick")

    def candidates(self, layer: LayerSizes) -> Iterator[Choices]:
        yield self
        yield from (Choices(way) for way in ("zeros", "raises", "nan", "quick", "slow"))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes in slow dataflows alone, whatever else the machine does."""
    now = [0.0]

    def passes(seconds: float = 1e-6) -> float:
        now[0] += seconds
        return now[0]

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=passes))


def cloud(n: int = 100, seed: int = 0) -> pcnn.SparseTensor:
    grid = surface_grid(n, seed=seed)
    return pcnn.SparseTensor(torch.randn(grid.rows, 4), grid)


def small_net(engine: Engine | None = None) -> nn.Module:
    engine = engine or Engine.of_settings("made_up", Choices())
    layers = [(4, 6, 3), (6, 6, 3), (6, 6, 3), (6, 6, 1), (6, 5, 2, 2)]
    return nn.Sequential(*(pcnn.nn.Conv3d(*one, engine=engine) for one in layers))


@pytest.mark.parametrize("backward", [False, True])
def test_the_quickest_right_settings_are_given_to_every_layer(backward: bool) -> None:
    net, x = small_net(), cloud()
    wanted = net(x).features
    endless = itertools.chain([x], map(cloud, itertools.repeat(60), itertools.count(1)))
    tuned = pcnn.tune(net, endless, samples=2, backward=backward, progress=False)
    assert next(endless).geometry.rows == cloud(60, 2).geometry.rows
    assert [one.name for one in tuned] == ["0", "1", "2", "4"]  # the fourth reads no map
    assert {one.settings for one in tuned} == {Choices("quick")}
    assert {one.before for one in tuned} == {Choices()}
    assert all(one.gain > 0 for one in tuned)
    assert "way=quick" in str(tuned[0])
    for name in ("0", "1", "2", "4"):
        assert convolutions(net)[name].engine.settings == Choices("quick")
    torch.testing.assert_close(net(x).features, wanted)
    assert all(parameter.grad is None for parameter in net.parameters())
    assert net.training
    assert not pcnn.tune(net, [x], progress=False)  # nothing is quicker


@pytest.mark.parametrize("asked", ["torch", "engine"])
def test_what_differs_from_run_to_run_is_left_out_where_bits_matter(asked: str) -> None:
    made = Engine.of_settings("made_up", Choices())
    net = small_net(replace(made, reproducible=asked == "engine"))
    torch.use_deterministic_algorithms(asked == "torch")
    try:
        assert not pcnn.tune(net, [cloud()], progress=False)
    finally:
        torch.use_deterministic_algorithms(False)


def test_batches_of_a_data_module_serve_and_others_do_not() -> None:
    x = cloud()
    assert sparse_of(x) is x
    assert sparse_of(SimpleNamespace(tensor=x)) is x
    assert sparse_of((x, torch.zeros(3))) is x
    assert sparse_of([SimpleNamespace(tensor=x)]) is x
    with pytest.raises(TypeError, match="holds no SparseTensor"):
        pcnn.tune(small_net(), [torch.zeros(3)])
    for batches in ([], [cloud(0)]):
        with pytest.raises(ValueError, match="nothing to tune"):
            pcnn.tune(small_net(), batches)
