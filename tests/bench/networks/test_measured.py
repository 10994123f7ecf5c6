from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pcnn.bench.networks import measured as measured_file
from pcnn.bench.networks import work as work_file
from pcnn.bench.networks.check import check_network
from pcnn.bench.networks.measured import (
    Setting,
    Standard,
    Variant,
    configuration_of,
    network_rows,
)
from pcnn.bench.networks.models import make_network, settle_norms
from pcnn.bench.networks.rounding import Rounded
from pcnn.bench.networks.work import MODES, Cells
from pcnn.bench.scenes import Scene, load_scene, noise
from pcnn.bench.verify import CheckFailed, bound_of
from pcnn.geometry import grid_of_cells
from pcnn.maps import SortedSearch
from pcnn.ops.engine import Engine, resolve

CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.long])]
SMALL = Scene("small", grid_of_cells(torch.from_numpy(noise(300, fill=0.3))))


def setting(device: str = "cpu", **other: object) -> Setting:
    words = {"models": ["sparse_resnet"], "width": 0.25, "repeats": 3, **other}
    return Setting(torch.device(device), [SMALL], [resolve("auto")], **words)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_mode_of_every_network_is_checked_and_timed(device: str, dtype: str) -> None:
    models = ["sparse_resnet", "minkunet"]
    rows = list(network_rows(setting(device, models=models, dtype=dtype), "networks"))
    modes = [(row.model, (row.params or {})["mode"]) for row in rows]
    assert modes == [(model, mode) for model in models for mode in MODES]
    for row in rows:
        assert row.checked, row.params
        assert (row.what, row.n, row.dtype) == ("network", SMALL.grid.rows, dtype)
        assert 0 < row.min_ms <= row.wall_ms


def test_a_large_scene_is_checked_on_a_part_and_says_so() -> None:
    found = setting(check_voxels=200, runs=2)
    rows = list(network_rows(found, "f", modes=["infer"]))
    assert [row.run for row in rows] == [0, 1]
    assert {row.n for row in rows} == {SMALL.grid.rows}
    assert all(row.params == {"mode": "infer", "checked_on": "200 voxels"} for row in rows)


def test_kernels_and_batches_are_settings_of_a_row() -> None:
    rows = list(network_rows(setting(), "f", [Variant("minkunet", 5, 2)], ["infer"]))
    assert [row.params for row in rows] == [{"mode": "infer", "K": 5, "B": 2}]
    assert rows[0].checked
    assert rows[0].n == 2 * SMALL.grid.rows


@pytest.mark.parametrize("mode", ["infer", "step"])
def test_a_wrong_network_is_not_timed(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    right = work_file.Work.results
    auto = resolve("auto")

    def damaged(self: work_file.Work, mode: str) -> dict[str, torch.Tensor]:
        found = right(self, mode)
        engines = {getattr(module, "engine", None) for module in self.network.modules()}
        if auto in engines:
            name = list(found)[-1]
            found[name] = found[name] * 1.1
        return found

    monkeypatch.setattr(work_file.Work, "results", damaged)
    monkeypatch.setattr(measured_file, "measure", lambda *args, **_: pytest.fail("timed"))
    (row,) = network_rows(setting(), "networks", modes=[mode])
    assert "is off by" in str((row.params or {})["left_out"])
    assert not row.checked


def test_a_network_is_held_to_what_errors_of_its_products_make_of_it() -> None:
    """Products at half their bound pass; errors twenty times as large do not."""
    standard = Standard(setting(), Variant("sparse_resnet"), Cells.of(SMALL.grid, CPU))
    truth, plain, rounded = standard.results("infer")
    configuration = configuration_of(
        setting(), SMALL, Variant("sparse_resnet"), resolve("auto"), {"mode": "infer"}
    )
    for share, passes in ((0.5, True), (20.0, False)):
        flow = Rounded(error=share * bound_of("float32"))
        found = standard._wide(Engine("rounded", SortedSearch(), flow), "infer")
        if passes:
            check_network(configuration, found, truth, plain, rounded)
        else:
            with pytest.raises(CheckFailed, match=r"is off by .* its bound is .* 2 times"):
                check_network(configuration, found, truth, plain, rounded)


def test_a_gradient_that_vanishes_may_be_off_by_a_rounding_of_the_largest() -> None:
    configuration = configuration_of(
        setting(), SMALL, Variant("sparse_resnet"), resolve("auto"), {"mode": "train"}
    )
    truth = {"head": torch.ones(4), "stem": torch.full((4,), 1e-17)}
    truth = {name: value.double() for name, value in truth.items()}
    none = dict.fromkeys(truth, 0.0)
    for error, passes in ((3 * bound_of("float32"), True), (5 * bound_of("float32"), False)):
        found = {"head": truth["head"], "stem": truth["stem"] + error}
        if passes:
            check_network(configuration, found, truth, truth, none)
        else:
            with pytest.raises(CheckFailed, match="stem is off by"):
                check_network(configuration, found, truth, truth, none)


def test_a_network_that_does_not_exist_in_a_size_is_named() -> None:
    with pytest.raises(ValueError, match="kernels of size 3, not 7"):
        list(network_rows(setting(), "f", [Variant("sparse_resnet", 7)]))


def test_features_stay_with_their_cells() -> None:
    network = make_network("sparse_resnet", resolve("auto"), 3, 0.25, CPU)
    cells = Cells.of(SMALL.grid, CPU, batches=2)
    x = cells.on(network, backward=False)
    assert x.geometry.batch_size == 2
    place = {tuple(cell): number for number, cell in enumerate(cells.cells.tolist())}
    order = [place[tuple(cell)] for cell in x.geometry.coords.tolist()]
    assert torch.equal(x.features, cells.features[order])
    assert order != sorted(order), "cells are shuffled"
    twice = grid_of_cells(torch.tensor([[0, 0, 0], [1, 1, 1]]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="several clouds"):
        Cells.of(twice, CPU, batches=2)


def test_norms_keep_features_in_scale() -> None:
    network = make_network("minkunet", resolve("reference"), 3, 0.25, CPU)
    x = Cells.of(load_scene("surface_1k").grid, CPU).on(network, backward=False)
    before = [module.momentum for module in network.modules() if hasattr(module, "momentum")]
    settle_norms(network, x)
    after = [module.momentum for module in network.modules() if hasattr(module, "momentum")]
    assert before == after
    assert not network.training
    with torch.no_grad():
        assert 0.1 < float(network(x).features.std()) < 10


def test_engines_share_their_weights() -> None:
    one, two = (make_network("sparse_resnet", resolve(e), 3, 0.25, CPU) for e in ("auto", None))
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)


def test_entries_have_settings_of_their_own() -> None:
    entry = replace(resolve("reference"), name="mine"), {"step": "first"}
    (row,) = network_rows(setting(), "f", modes=["infer"], entries=[entry])
    assert (row.engine, row.params) == ("mine", {"mode": "infer", "step": "first"})
