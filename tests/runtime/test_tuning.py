from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import pcnn
from pcnn.dataflows import Blocked, Dataflow, GatherScatter, Reference
from pcnn.dataflows.hybrid import Hybrid
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.dataflows.row_stationary import RowStationary
from pcnn.dataflows.tuning_file import read, user_path
from pcnn.maps import SortedSearch
from pcnn.ops import Engine
from pcnn.ops.engine import resolve
from pcnn.ops.engine_settings import MinuetSettings, TorchSparseSettings
from pcnn.runtime import network_race, shared_layouts, timing
from pcnn.runtime.candidates import Outcome
from pcnn.runtime.layer_calls import convolutions, recorded, sparse_of
from pcnn.runtime.network_race import is_quicker
from tests.clouds import surface_grid
from tests.maps.native_points import scan
from tests.runtime import flawed
from tests.runtime.flawed import Slow, Wrong


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes in slow dataflows alone, whatever else the machine does."""
    now = [0.0]

    def passes(seconds: float = 1e-6) -> float:
        now[0] += seconds
        return now[0]

    for module in (timing, network_race, shared_layouts):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=passes))
    monkeypatch.setattr(flawed, "time", SimpleNamespace(sleep=passes))


def cloud(n: int = 100, channels: int = 4, seed: int = 0) -> pcnn.SparseTensor:
    grid = surface_grid(n, seed=seed)
    return pcnn.SparseTensor(torch.randn(grid.rows, channels), grid)


def small_net() -> nn.Module:
    return nn.Sequential(
        pcnn.nn.Conv3d(4, 6, 3), pcnn.nn.Conv3d(6, 6, 1), pcnn.nn.Conv3d(6, 5, 2, 2)
    )


def dataflows(net: nn.Module) -> dict[str, object]:
    return {name: layer.engine.dataflow for name, layer in convolutions(net).items()}


def test_the_quickest_right_candidate_is_given_to_every_layer() -> None:
    net, x = small_net(), cloud()
    before, wanted = dataflows(net)["1"], net(x).features
    candidates = [Wrong(), Slow(), Reference()]
    layers = pcnn.tune(net, [x], candidates=candidates)
    assert [layer.name for layer in layers] == ["0", "2"]
    assert {layer.dataflow for layer in layers} == {Reference()}
    assert dataflows(net) == {"0": Reference(), "1": before, "2": Reference()}
    torch.testing.assert_close(net(x).features, wanted)
    kept = {choice.dataflow for _, _, choices in read(user_path()) for choice in choices}
    assert kept == {Reference()}  # of classes that no file may name there is nothing on disk


def test_gradients_are_tuned_on_request(tmp_path: Path) -> None:
    net, x = small_net(), cloud()
    path = tmp_path / "tuned.json"
    layers = pcnn.tune(net, [x], candidates=[Reference(), Slow()], backward=True, cache=path)
    assert all(set(layer.ms) == {"forward", "transposed", "vvor"} for layer in layers)
    assert {signature.product for signature, _, _ in read(path)} == set(layers[0].ms)
    net(x).features.sum().backward()


def test_a_cpu_has_nothing_to_choose_from() -> None:
    net = small_net()
    layers = pcnn.tune(net, [cloud()])
    assert {layer.dataflow for layer in layers} == {Blocked()}
    assert not any(layer.ms for layer in layers)
    assert not user_path().exists()


def test_spira_tries_every_threshold_of_a_kernel_and_keeps_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spira = Engine("spira", SortedSearch(), Hybrid(3))
    sizes = ((4, 6, 3, 1), (6, 6, 5, 1), (6, 5, 2, 2), (5, 5, 1, 1))
    net, x = nn.Sequential(*(pcnn.nn.Conv3d(*one, engine=spira) for one in sizes)), cloud()
    wanted, tried = net(x).features, []

    def outcome(calls: object, product: str, offered: tuple[Hybrid, ...], **_: object) -> Outcome:
        tried.append([one.threshold for one in offered])
        return Outcome({one: abs(one.threshold - 2.0) for one in offered})

    monkeypatch.setattr("pcnn.runtime.own_candidates.compare", outcome)
    for backward in (False, True):
        layers = pcnn.tune(net, [x], backward=backward)
        assert tried[:: 1 + backward] == [list(range(5)), list(range(8)), list(range(5))]
        for layer in layers:
            forward = layer.dataflow.parts[0] if backward else layer.dataflow
            assert forward == Hybrid(2)
            assert not layer.known
        torch.testing.assert_close(net(x).features, wanted)
        tried.clear()
    assert not user_path().exists()


@pytest.mark.parametrize("settings", [TorchSparseSettings(), MinuetSettings()])
@pytest.mark.parametrize("quicker", [False, True])
def test_settings_of_a_paper_win_if_the_network_is_quicker_with_them(
    settings: TorchSparseSettings | MinuetSettings, quicker: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Engine("own", SortedSearch(), settings.dataflow, settings=settings)
    net = nn.Sequential(*(pcnn.nn.Conv3d(*one, engine=own) for one in ((4, 6, 3), (6, 5, 2, 2))))
    tried: list[Sequence[Dataflow]] = []

    def outcome(calls: object, product: str, offered: Sequence[Dataflow], **_: object) -> Outcome:
        tried.append(offered)
        return Outcome({one: 1.0 - 0.1 * (one == offered[-1]) for one in offered})

    monkeypatch.setattr("pcnn.runtime.own_candidates.compare", outcome)
    monkeypatch.setattr("pcnn.runtime.tuning.is_quicker", lambda *_: quicker)
    x = cloud(seed=1)
    wanted = net(x).features
    for layer, offered in zip(pcnn.tune(net, [cloud()]), tried, strict=True):
        assert {type(one) for one in offered} == {GatherScatter}
        assert offered[0] == settings.dataflow
        engine = convolutions(net)[layer.name].engine
        assert engine.dataflow == layer.dataflow == offered[-1 if quicker else 0]
        assert engine.settings == layer.settings
        assert engine.settings is not None
        assert engine.settings.dataflow == layer.dataflow
    assert len(tried[0]) > 5
    torch.testing.assert_close(net(x).features, wanted)
    assert not user_path().exists()


def test_the_clock_decides_which_engines_a_network_keeps() -> None:
    quick, slow = (Engine(f.name, SortedSearch(), f) for f in (Reference(), Slow()))
    net, x = nn.Sequential(pcnn.nn.Conv3d(4, 6, 3, engine=slow)), cloud()
    assert is_quicker(net, [x], {"0": quick})
    assert convolutions(net)["0"].engine is slow
    assert not is_quicker(net, [x], {"0": slow})


def test_decisions_are_kept_and_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = (Reference(), Blocked())
    monkeypatch.setattr("pcnn.runtime.tuning.default_candidates", lambda *_: offered)
    first = pcnn.tune(small_net(), [cloud()])
    assert not any(layer.known for layer in first)
    assert user_path().exists()

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("measured again")

    with monkeypatch.context() as patch:
        patch.setattr("pcnn.runtime.tuning.compare", fail)
        patch.setattr("pcnn.runtime.tuning.layouts_ms", fail)
        second = pcnn.tune(small_net(), [cloud()])
        assert all(layer.known for layer in second)
        assert [one.dataflow for one in second] == [one.dataflow for one in first]
        with pytest.raises(AssertionError, match="measured again"):
            pcnn.tune(small_net(), [cloud()], fresh=True)
        with pytest.raises(AssertionError, match="measured again"):
            pcnn.tune(small_net(), [cloud()], candidates=offered)


def test_only_deterministic_candidates_under_torchs_switch() -> None:
    shaky = Reference(name="shaky", deterministic=False)
    torch.use_deterministic_algorithms(True)
    layers = pcnn.tune(small_net(), [cloud()], candidates=[shaky, Slow()])
    assert {layer.dataflow for layer in layers} == {Slow()}
    with pytest.raises(ValueError, match="no candidate"):
        pcnn.tune(small_net(), [cloud()], candidates=[shaky])


def test_only_deterministic_candidates_for_an_engine_that_asks() -> None:
    shaky = Reference(name="shaky", deterministic=False)
    net = small_net()
    steady = replace(convolutions(net)["0"].engine, reproducible=True)
    convolutions(net)["0"].engine = steady
    assert {layer.dataflow for layer in pcnn.tune(net, [cloud()], candidates=[shaky, Slow()])} == {
        Slow()
    }


def test_what_an_engine_asks_for_outlives_a_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    shaky = Reference(name="shaky", deterministic=False)
    nets = [small_net(), small_net()]
    for number, layer in enumerate(convolutions(net)["0"] for net in nets):
        asked = replace(layer.engine, reproducible=True)
        layer.engine = resolve("reference", deterministic=True) if number else asked
    for net in nets:
        assert {one.dataflow for one in pcnn.tune(net, [cloud()], candidates=[Slow()])} == {Slow()}
        # Slow takes longer and still has to win
        again = pcnn.tune(net, [cloud()], candidates=[shaky, Slow()])
        assert {one.dataflow for one in again} == {Slow()}
    # and layers that were not asked for stay free
    free = small_net()
    pcnn.tune(free, [cloud()], candidates=[Slow()])
    assert {one.dataflow for one in pcnn.tune(free, [cloud()], candidates=[shaky, Slow()])} == {
        shaky
    }


def test_batches_of_a_data_module_serve_and_others_do_not() -> None:
    x = cloud()
    assert sparse_of(x) is x
    assert sparse_of(SimpleNamespace(tensor=x)) is x
    assert sparse_of((x, torch.zeros(3))) is x
    assert sparse_of([SimpleNamespace(tensor=x)]) is x
    with pytest.raises(TypeError, match="holds no SparseTensor"):
        pcnn.tune(small_net(), [torch.zeros(3)])


def test_nothing_to_measure_on_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to tune"):
        pcnn.tune(small_net(), [])
    with pytest.raises(ValueError, match="nothing to tune"):
        pcnn.tune(small_net(), [cloud(0)])


def test_samples_are_limited_and_an_endless_loader_serves() -> None:
    served = 0

    def endless() -> Iterator[pcnn.SparseTensor]:
        nonlocal served
        while True:
            served += 1
            yield cloud(60, seed=served)

    pcnn.tune(small_net(), endless(), samples=2, candidates=[Reference()])
    assert served == 2


def test_calls_are_those_the_layers_saw() -> None:
    net = pcnn.models.MinkUNet42(width=0.125).train()
    x = cloud(200)
    with torch.autocast("cpu", torch.bfloat16):
        calls = recorded(net, [x, cloud(150, seed=1)])
    assert net.training
    layers = convolutions(net)
    assert set(calls) == {name for name in layers if layers[name].kernel.volume > 1}
    assert all(len(own) == 2 for own in calls.values())
    assert {call.dtype for own in calls.values() for call in own} == {torch.bfloat16}
    up = calls["up.3.conv"][0].kernel_map
    down = calls["encoder.0.0.conv"][0].kernel_map
    assert up.edges is down.edges
    assert (up.n_in, up.n_out) == (down.n_out, down.n_in)
    assert calls["stem.0.conv"][0].kernel_map.n_in == x.geometry.rows


def test_layers_on_native_points_are_tuned_and_explained() -> None:
    points = scan(40)
    x = pcnn.SparseTensor(torch.randn(points.rows, 4), points)
    candidates = [Wrong(), Slow(), RowStationary(), OutputStationary()]
    net = small_net()
    wanted = net(x).features
    for _ in range(2):  # nothing is kept: tables do not know of maps with several inputs a slot
        layers = pcnn.tune(net, [x], candidates=candidates)
        assert {layer.dataflow for layer in layers} == {RowStationary()}
        assert not any(layer.known for layer in layers)
    torch.testing.assert_close(net(x).features, wanted, rtol=1e-4, atol=1e-5)
    assert not len(read(user_path()))
    explanation = pcnn.explain(net, x, repeats=1)
    assert [layer.dataflow for layer in explanation.layers] == [
        "RowStationary",
        "linear",
        "RowStationary",
    ]
