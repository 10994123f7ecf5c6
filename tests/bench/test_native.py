"""Native points: figures, the search for the largest cloud, and checks by sample."""

from __future__ import annotations

import pytest
import torch

from pcnn.bench.charts import charts
from pcnn.bench.clouds import room
from pcnn.bench.native import memory
from pcnn.bench.native.figures import FIGURES
from pcnn.bench.native.layers import same_triplets
from pcnn.bench.native.memory import bytes_of, sampled_truth
from pcnn.bench.native.network import MODES, CheckedNetworks
from pcnn.bench.native.variants import named_variants, tensor_on
from pcnn.bench.rows import Row
from pcnn.bench.suite import chosen_figures
from pcnn.bench.verify import CheckFailed
from tests.bench.settings import left_out, listed, of_points, rows_of

CPU = torch.device("cpu")
BY_NAME = {figure.name: figure for figure in FIGURES}


#: Figures of layers, of triplets and of networks on rooms: listed here, run on a GPU.
def test_layers_and_triplets_are_checked_and_timed() -> None:
    rows = rows_of(FIGURES, "native_triplets", of_points("native"))
    assert not left_out(rows)
    assert all(row.checked and row.wall_ms > 0 for row in rows)


def test_all_variants_and_kinds_of_the_papers_figures_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed(monkeypatch)
    names = {"voxel", "degraded", "native", "torchsparse", "minuet", "pointcnnpp"}
    rows = rows_of(FIGURES, "pointcnnpp_fig4", of_points(size_list=(200, 300), rooms=2))
    assert {(r.engine, r.what) for r in rows} == {
        (name, kind) for name in names for kind in ("layer", "backward")
    }
    assert len(rows) == len(names) * 2 * 4
    assert {(r.k, r.c_in, r.c_out) for r in rows} == {(3, 64, 128)}
    rows = rows_of(FIGURES, "native_groups", of_points("native"))
    groups = [(r.params or {}).get("groups", 1) for r in rows if r.what == "layer"]
    assert groups == [1, 2, 4, 8, 16]
    rows = rows_of(FIGURES, "pointcnnpp_fig5", of_points("native"))
    assert [(row.params or {})["mode"] for row in rows] == list(MODES)


def test_a_wrong_network_is_not_timed_and_a_small_room_leaves_features_in_scale() -> None:
    setting = of_points("native")
    checked = CheckedNetworks(setting)
    standard = checked.standard("native")
    with torch.no_grad():  # its coarse points are all neighbours: channels without variance
        logits = standard.network(standard.cells.on(standard.network, backward=False))
    assert float(logits.abs().max()) < 100
    truth, plain, rounded = standard.results("infer")
    wrong = ({name: 1.1 * value for name, value in one.items()} for one in (truth, plain))
    standard._found["infer"] = (*wrong, rounded)
    with pytest.raises(CheckFailed, match="is off"):
        checked.work(setting.variants[0], "infer", room(0, 300, CPU))


def test_a_figure_begins_nothing_after_its_time() -> None:
    first, rest = rows_of(FIGURES, "pointcnnpp_fig4", of_points(limit=0.0))
    assert (first.engine, rest.engine) == ("voxel", "rest")
    assert "0 s are over" in left_out([rest])[0]


def test_maps_of_the_same_size_have_as_many_triplets() -> None:
    setting = of_points("voxel", "native", size_list=[1000])
    rows = [row for row in rows_of(FIGURES, "native_same_t", setting) if row.what == "layer"]
    voxel, native = ([r for r in rows if r.engine == name] for name in ("voxel", "native"))
    for one, other in zip(voxel, native, strict=True):
        assert one.triplets == pytest.approx(other.triplets, rel=0.01)
    cloud = room(0, 500, CPU)
    (variant,) = setting.chosen("native")
    assert same_triplets(cloud, variant, variant) == (cloud, cloud)


def test_memory_counts_every_piece_once() -> None:
    a, b = torch.zeros(10), torch.zeros(6)
    assert bytes_of([a, a[2:], b], ()) == 64
    assert bytes_of([a, b], [b[:1]]) == 40
    (row,) = rows_of(FIGURES, "native_memory", of_points("native"))
    params = row.params or {}
    parts = ("activations_mb", "weights_mb", "gradients_mb", "layouts_mb")
    assert all(params[part] > 0 for part in parts)
    assert params["needed_mb"] == pytest.approx(sum(params[part] for part in parts), abs=1e-3)


def test_a_sample_of_a_large_layer_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(sites, layer):  # type: ignore[no-untyped-def]
        truth, rows = sampled_truth(sites, layer)
        return {**truth, "grad_x": 1.01 * truth["grad_x"]}, rows

    monkeypatch.setattr("pcnn.bench.native.memory.sampled_truth", damaged)
    layer, step = rows_of(FIGURES, "native_step20m", of_points("native"))
    assert "grad_x is off" in left_out([layer])[0]
    assert step.checked


class Passed:
    def check(self, *_: object) -> None:
        pass

    def forget(self) -> None:
        pass


def test_the_largest_cloud_is_found_by_bisection(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = 3_000_000

    def tried(setting, figure, checked, variant, mode, points):  # type: ignore[no-untyped-def]
        said = {"mode": mode, "points": points, "fits": int(points <= fits)}
        taken = float(points) if said["fits"] else None
        return Row("network", "room", variant.name, n=points, params=said, memory_mb=taken)

    monkeypatch.setattr(memory, "_tried", tried)
    chosen = of_points("native", "voxel")
    rows = [
        row
        for variant in chosen.variants
        for row in memory._of_variant(chosen, "f", Passed(), variant, "train")
    ]
    for name in ("voxel", "native"):
        good = [r.n for r in rows if r.engine == name and (r.params or {})["fits"]]
        assert fits / memory.CLOSE <= max(good) <= fits
        assert len([r for r in rows if r.engine == name]) < 10
    (chart,) = charts(BY_NAME["pointcnnpp_figJ"].views, rows)
    (panel,) = chart.panels
    assert all(", up to 2." in label or ", up to 3" in label for label in panel.series)
    small = of_points("native", largest=1000)
    found = memory._of_variant(small, "f", Passed(), small.variants[0], "infer")
    assert max(r.n for r in found) <= 1_000_000
    assert rows_of(FIGURES, "pointcnnpp_figJ", of_points()) == [], "it needs a GPU"


def test_names_are_short_or_full() -> None:
    found = chosen_figures(["fig3", "native_groups", "same_t"], FIGURES)
    names = ["pointcnnpp_fig3", "native_groups", "native_same_t"]
    assert [figure.name for figure in found] == names
    with pytest.raises(ValueError, match="no line mesh"):
        named_variants(["mesh"], CPU)
    with pytest.raises(ValueError, match="voxel, degraded, native"):
        tensor_on("mesh", torch.rand(3, 3), torch.rand(3, 3), 1.0, None)
