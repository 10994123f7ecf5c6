"""Whole networks: modes, settings of figures, and what their results are held against."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pcnn.bench.engines import MINUET_STEPS, SPIRA_STEPS, steps, with_papers
from pcnn.bench.latency.setting import LatencySetting
from pcnn.bench.networks import work
from pcnn.bench.networks.cases import NetworkSize, Standard, network_row, network_rows, parts
from pcnn.bench.networks.figures import FIGURES
from pcnn.bench.networks.models import features_of, make_network, settle_norms
from pcnn.bench.networks.rounding import Rounded
from pcnn.bench.networks.work import Cells
from pcnn.bench.scenes import load_scene
from pcnn.bench.setting import MODELS, MODES, OTHER_MODELS, NetworksSetting, Precision
from pcnn.bench.verify import CheckFailed, bound_of, check_network
from pcnn.geometry import grid_of_cells
from pcnn.maps import SortedSearch
from pcnn.ops.engine import Engine, resolve
from tests.bench.settings import SMALL, left_out, of_networks

CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.long])]
GRID = SMALL[0].grid
RESNET = NetworkSize("sparse_resnet")
ROW = network_row(of_networks(), "small", "auto", "sparse_resnet", "f", {"mode": "infer"})


@pytest.mark.parametrize("device", DEVICES)
def test_every_mode_of_a_network_is_checked_and_timed(device: str) -> None:
    rows = list(network_rows(of_networks(device=device, dtype=Precision.float16), "networks"))
    assert not left_out(rows)
    assert [(row.params or {})["mode"] for row in rows] == list(MODES)
    for row in rows:
        assert row.checked
        assert (row.what, row.model, row.n) == ("network", "sparse_resnet", GRID.rows)
        assert row.dtype == "float16"
        assert 0 < row.min_ms <= row.wall_ms


@pytest.mark.gpu
@pytest.mark.long
def test_a_training_step_tells_its_memory_and_its_kernels() -> None:
    whole, step = (
        next(network_rows(of_networks(device="cuda", model=["minkunet"], mode=[mode]), "networks"))
        for mode in ("train", "step")
    )
    for row in (whole, step):
        assert row.checked, row.params
        assert row.memory_mb > 0
        assert 0 < row.gpu_busy_ms <= row.wall_ms
    # the plan is inside the one, and beforehand in the other
    assert whole.launches > step.launches
    assert whole.gpu_busy_ms > step.gpu_busy_ms


@pytest.mark.slow
def test_parts_and_tiles_are_read_off_traces() -> None:
    """Profiling a CPU takes a second a call."""
    rows = network_rows(of_networks(), "f", [RESNET], ["infer"], measure=parts)
    names = ["mapping", "gather", "scatter", "products", "rest"]
    assert [(row.params or {})["part"] for row in rows] == names
    (figure,) = [figure for figure in FIGURES if figure.name == "minuet_fig20"]
    rows = list(figure.measure(of_networks(), figure.name))
    assert {"layer", "gather", "scatter"} == set(rows[0].params or {})


def test_a_large_scene_is_checked_on_a_part_and_says_so() -> None:
    rows = list(network_rows(of_networks(check_voxels=150, runs=2), "f", modes=["infer"]))
    assert [row.run for row in rows] == [0, 1]
    assert {row.n for row in rows} == {GRID.rows}
    assert all(row.params == {"mode": "infer", "checked_on": "150 voxels"} for row in rows)


def test_kernels_and_batches_are_settings_of_a_row() -> None:
    entry = replace(resolve("reference"), name="mine"), {"step": "first"}
    size = NetworkSize("minkunet", 5, 2)
    (row,) = network_rows(of_networks(check_voxels=600), "f", [size], ["infer"], [entry])
    assert row.params == {"mode": "infer", "K": 5, "B": 2, "step": "first"}
    assert (row.engine, row.checked, row.n) == ("mine", True, 2 * GRID.rows)
    with pytest.raises(ValueError, match="kernels of size 3, not 7"):
        list(network_rows(of_networks(), "f", [NetworkSize("sparse_resnet", 7)]))


def test_a_wrong_network_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right, auto = work.Work.results, resolve("auto")

    def damaged(self: work.Work, mode: str) -> dict[str, torch.Tensor]:
        found = right(self, mode)
        engines = {getattr(module, "engine", None) for module in self.network.modules()}
        if auto in engines:
            name = list(found)[-1]
            found[name] = found[name] * 1.1
        return found

    monkeypatch.setattr(work.Work, "results", damaged)
    for mode in ("infer", "step"):
        (row,) = network_rows(of_networks(mode=[mode]), "networks")
        assert "is off by" in left_out([row])[0]
        assert row.wall_ms is None


def test_a_network_is_held_to_what_errors_of_its_products_make_of_it() -> None:
    """Products at half their bound pass; errors twenty times as large do not."""
    standard = Standard(of_networks(), RESNET, Cells.of(GRID, CPU))
    truth, plain, rounded = standard.results("infer")
    near, far = (
        standard._wide(Engine("rounded", SortedSearch(), Rounded(error=error)), "infer")
        for error in (0.5 * bound_of("float32"), 20.0 * bound_of("float32"))
    )
    check_network(ROW, near, truth, plain, rounded)
    with pytest.raises(CheckFailed, match=r"is off by .* its bound is .* 2 times"):
        check_network(ROW, far, truth, plain, rounded)


def test_a_gradient_that_vanishes_may_be_off_by_a_rounding_of_the_largest() -> None:
    truth = {"head": torch.ones(4), "stem": torch.full((4,), 1e-17)}
    truth = {name: value.double() for name, value in truth.items()}
    none = dict.fromkeys(truth, 0.0)
    near, far = ({**truth, "stem": truth["stem"] + n * bound_of("float32")} for n in (3, 5))
    check_network(ROW, near, truth, truth, none)
    with pytest.raises(CheckFailed, match="stem is off by"):
        check_network(ROW, far, truth, truth, none)


def test_features_stay_with_their_cells() -> None:
    network = make_network("sparse_resnet", resolve("auto"), 3, 0.25, CPU)
    cells = Cells.of(GRID, CPU, batches=2)
    x = cells.on(network, backward=False)
    assert x.geometry.batch_size == 2
    place = {tuple(cell): number for number, cell in enumerate(cells.cells.tolist())}
    order = [place[tuple(cell)] for cell in x.geometry.coords.tolist()]
    assert torch.equal(x.features, cells.features[order])
    assert order != sorted(order), "cells are shuffled"
    twice = grid_of_cells(torch.tensor([[0, 0, 0], [1, 1, 1]]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="several clouds"):
        Cells.of(twice, CPU, batches=2)


def test_norms_keep_features_in_scale_and_engines_share_their_weights() -> None:
    network = make_network("minkunet", resolve("reference"), 3, 0.25, CPU)
    x = Cells.of(load_scene("surface_1k").grid, CPU).on(network, backward=False)
    before = [module.momentum for module in network.modules() if hasattr(module, "momentum")]
    settle_norms(network, x)
    after = [module.momentum for module in network.modules() if hasattr(module, "momentum")]
    assert before == after
    assert not network.training
    with torch.no_grad():
        assert 0.1 < float(network(x).features.std()) < 10
    one, two = (make_network("sparse_resnet", resolve(e), 3, 0.25, CPU) for e in ("auto", None))
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)


def test_other_networks_are_measured_where_they_are_named() -> None:
    assert NetworksSetting().models == MODELS
    assert LatencySetting(model=list(OTHER_MODELS)).models == list(OTHER_MODELS)
    cells = Cells.of(GRID, CPU)
    for name in NetworksSetting(model=list(OTHER_MODELS)).models:
        network = make_network(name, resolve("reference"), 3, 0.125, CPU)
        settle_norms(network, cells.on(network, backward=False))
        with torch.no_grad():
            outputs = features_of(network(cells.on(network, backward=False)))
        assert all(torch.isfinite(one).all() for one in outputs), name


def test_steps_of_a_paper_end_with_ours_and_papers_stand_beside_engines() -> None:
    for chosen in (MINUET_STEPS, SPIRA_STEPS):
        entries = steps("name", CPU, chosen)
        assert entries[-1] == (resolve("auto"), {"step": "ours, planned"})
    assert len(entries) == 1, "hybrids need a GPU"
    entries = with_papers([resolve("auto"), replace(resolve("auto"), name="minuet")], CPU)
    assert [engine.name for engine, _ in entries] == ["auto", "minuet", "torchsparse"]
