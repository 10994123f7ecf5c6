from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pcnn.bench.charts import charts
from pcnn.bench.layers import layer as layer_file
from pcnn.bench.native import limits
from pcnn.bench.native.account import bytes_of
from pcnn.bench.native.figures import FIGURES, SHORT, full_names
from pcnn.bench.native.large_step import sampled_truth
from pcnn.bench.native.layers import same_triplets
from pcnn.bench.native.lines import named_lines
from pcnn.bench.native.network import Checked
from pcnn.bench.native.rooms import room
from pcnn.bench.native.setting import Setting
from pcnn.bench.rows import Header, Row, write_rows
from pcnn.bench.suite import chosen_figures, draw
from pcnn.bench.verify import CheckFailed

CPU = torch.device("cpu")
NAMES = [figure.name for figure in FIGURES]
by_name = {figure.name: figure for figure in FIGURES}.__getitem__
#: Lines that are enough for a figure.
FEW = {"fig5": ("pointcnnpp",), "memory": ("native",), "groups": ("native",), "fig3": ()}


def setting(device: str = "cpu", *lines: str, **other: object) -> Setting:
    where = torch.device(device)
    words = {"rooms": 1, "sizes": (300,), "repeats": 3, "check_points": 250, "step_points": 400}
    return Setting(where, named_lines(lines, where), width=0.125, **words | other)


def rows_of(name: str, setting: Setting) -> list[Row]:
    (figure,) = chosen_figures(full_names([name]), FIGURES)
    return list(figure.measure(setting, figure.name))


def write(tmp_path: Path, rows: list[Row]) -> Path:
    header = Header("cpu", "2.6.0", "abc", "2026-01-31")
    return write_rows(tmp_path / "native.json", header, rows)


@pytest.mark.parametrize("name", [name for name in SHORT if name != "figJ"])
def test_a_figure_is_measured_and_drawn(name: str, tmp_path: Path) -> None:
    rows = rows_of(name, setting("cpu", *FEW.get(name, ("voxel", "native"))))
    assert rows
    for row in rows:
        assert "left_out" not in (row.params or {}), row
        assert row.checked
        assert "simulated" in row.workload
        assert row.figure == SHORT[name]
    assert draw(write(tmp_path, rows), FIGURES) or name == "fig3"  # memory is a GPU's


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("name", list(SHORT))
def test_every_figure_is_served_on_a_gpu(name: str, tmp_path: Path) -> None:
    chosen = setting("cuda", dtype="float16", sizes=(2000,), largest=300_000, step_points=20_000)
    rows = rows_of(name, chosen)
    assert rows
    left_out = [(row.engine, row.params) for row in rows if "left_out" in (row.params or {})]
    assert not left_out, left_out
    assert draw(write(tmp_path, rows), FIGURES)


def test_all_lines_and_kinds_of_the_papers_figures_are_there() -> None:
    lines = {"voxel", "degraded", "native", "torchsparse", "minuet", "pointcnnpp"}
    few = setting(sizes=(200, 300), rooms=2)
    rows = rows_of("fig4", few)
    assert {(r.engine, r.what) for r in rows} == {
        (name, kind) for name in lines for kind in ("layer", "backward")
    }
    assert len(rows) == len(lines) * 2 * 4
    assert {(r.k, r.c_in, r.c_out) for r in rows} == {(3, 64, 128)}


def test_a_wrong_layer_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = layer_file.convolution
    monkeypatch.setattr(layer_file, "convolution", lambda *a, **k: 1.01 * right(*a, **k))
    rows = list(rows_of("fig4", setting("cpu", "native")))
    assert rows
    for row in rows:
        assert "is off" in str((row.params or {})["left_out"])
        assert row.wall_ms is None


def test_a_wrong_network_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = setting("cpu", "native")
    checked = Checked(chosen)
    (line,) = chosen.lines
    truth, plain, rounded = checked.standard("native").results("infer")
    wrong = ({name: 1.1 * value for name, value in one.items()} for one in (truth, plain))
    checked.standard("native")._found["infer"] = (*wrong, rounded)
    with pytest.raises(CheckFailed, match="is off"):
        checked.work(line, "infer", room(0, 300, CPU))


def test_a_small_room_leaves_features_in_scale() -> None:
    """Its coarse points are all neighbours of each other: channels without variance."""
    checked = Checked(setting("cpu", "native"))
    standard = checked.standard("native")
    network = standard.network
    with torch.no_grad():
        logits = network(standard.cells.on(network, backward=False))
    assert float(logits.abs().max()) < 100


def test_a_figure_begins_nothing_after_its_time() -> None:
    rows = rows_of("fig4", setting(limit_s=0.0))
    assert [row.engine for row in rows[1:]] == ["rest"]
    assert "0 s are over" in str((rows[1].params or {})["left_out"])


def test_maps_of_the_same_size_have_as_many_triplets() -> None:
    rows = [row for row in rows_of("same_t", setting(sizes=(2000,))) if row.what == "layer"]
    voxel, native = ([r for r in rows if r.engine == name] for name in ("voxel", "native"))
    for one, other in zip(voxel, native, strict=True):
        assert one.triplets == pytest.approx(other.triplets, rel=0.01)
    cloud = room(0, 500, CPU)
    line = setting("cpu", "native").lines[0]
    assert same_triplets(cloud, line, line) == (cloud, cloud)


def test_layers_in_groups_are_checked_in_groups() -> None:
    rows = rows_of("groups", setting("cpu", "native"))
    assert [(r.params or {}).get("groups", 1) for r in rows if r.what == "layer"] == [
        1,
        2,
        4,
        8,
        16,
    ]


def test_memory_counts_every_piece_once() -> None:
    a, b = torch.zeros(10), torch.zeros(6)
    assert bytes_of([a, a[2:], b], ()) == 64
    assert bytes_of([a, b], [b[:1]]) == 40
    (row,) = rows_of("memory", setting("cpu", "native"))
    params = row.params or {}
    parts = ("activations_mb", "weights_mb", "gradients_mb", "layouts_mb")
    assert all(params[part] > 0 for part in parts)
    assert params["needed_mb"] == pytest.approx(sum(params[part] for part in parts), abs=1e-3)
    assert charts(by_name("native_memory").views, [row])


def test_a_sample_of_a_large_layer_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(sites, layer):  # type: ignore[no-untyped-def]
        truth, rows = sampled_truth(sites, layer)
        return {**truth, "grad_x": 1.01 * truth["grad_x"]}, rows

    monkeypatch.setattr("pcnn.bench.native.large_step.sampled_truth", damaged)
    layer, network = rows_of("step20m", setting("cpu", "native"))
    assert "grad_x is off" in str((layer.params or {})["left_out"])
    assert network.checked


class Passed:
    def check(self, *_: object) -> None:
        pass

    def forget(self) -> None:
        pass


def test_the_largest_cloud_is_found_by_bisection(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = 3_000_000

    def tried(setting, figure, checked, line, mode, points):  # type: ignore[no-untyped-def]
        said = {"mode": mode, "points": points, "fits": int(points <= fits)}
        memory = float(points) if said["fits"] else None
        return Row("network", "room", line.name, n=points, params=said, memory_mb=memory)

    monkeypatch.setattr(limits, "_tried", tried)
    chosen = setting("cpu", "native", "voxel")
    rows = [
        row
        for line in chosen.lines
        for row in limits._of_line(chosen, "f", Passed(), line, "train")
    ]
    for name in ("voxel", "native"):
        good = [r.n for r in rows if r.engine == name and (r.params or {})["fits"]]
        assert fits / limits.CLOSE <= max(good) <= fits
        assert len([r for r in rows if r.engine == name]) < 10
    (chart,) = charts(by_name("pointcnnpp_figJ").views, rows)
    (panel,) = chart.panels
    assert all(", up to 2." in label or ", up to 3" in label for label in panel.series)
    small = replace(chosen, largest=1_000_000)
    assert (
        max(r.n for r in limits._of_line(small, "f", Passed(), small.lines[0], "infer"))
        <= 1_000_000
    )


def test_the_largest_cloud_needs_a_gpu() -> None:
    assert rows_of("figJ", setting()) == []


def test_names_are_short_or_full() -> None:
    assert full_names(["fig3", "native_groups"]) == ["pointcnnpp_fig3", "native_groups"]
    assert sorted(SHORT.values()) == sorted(NAMES)
    with pytest.raises(ValueError, match="no line mesh"):
        named_lines(["mesh"], CPU)
