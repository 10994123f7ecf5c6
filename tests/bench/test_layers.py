"""Figures on single layers: every setting is listed, few are run on a CPU, all on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from pcnn.bench import engines
from pcnn.bench.harness import Calls, Timing
from pcnn.bench.layer_shape import KINDS, LayerShape
from pcnn.bench.layers import grouping
from pcnn.bench.layers import layer as layer_file
from pcnn.bench.layers.cases import layer_rows, wanted_at
from pcnn.bench.layers.figures import FIGURES
from pcnn.bench.layers.layer import products_of
from pcnn.bench.layers.parts import part_of, parts_of
from pcnn.bench.scenes import load_scene
from pcnn.bench.setting import Precision
from pcnn.geometry import Kernel
from pcnn.ops.engine import resolve
from tests.bench.settings import SCENES, SMALL, left_out, of_layers, rows_of

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = (LayerShape(3, 5, 3), LayerShape(4, 4, 2, 2))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "tf32"])
def test_every_kind_of_every_layer_is_checked_and_timed(device: str, dtype: str) -> None:
    scenes = [load_scene("surface_1k")]
    words = {"layers": ["3:5:3", "4:4:2:2"], "engine": ["auto", "reference"], "scenes": scenes}
    setting = of_layers(device=device, dtype=Precision(dtype), **words)
    rows = list(layer_rows(setting, "layers"))
    assert not left_out(rows)
    assert [(row.c_in, row.k, row.stride, row.engine, row.what) for row in rows] == [
        (shape.c_in, shape.size, shape.stride, engine, kind)
        for shape in SHAPES
        for engine in ("auto", "reference")
        for kind in KINDS
    ]
    for row in rows:
        assert (row.workload, row.dtype) == ("surface_1k (generated)", dtype)
        assert 0 < row.min_ms <= row.wall_ms <= row.p90_ms
        assert (row.memory_mb is None) == (device == "cpu")


def test_parts_of_a_layer_are_read_off_a_trace() -> None:
    entries, shape = [(resolve("auto"), {"variant": "ours"})], LayerShape(4, 4, 3)
    measure = parts_of(["products"], with_map=True)
    setting = of_layers(scenes=SMALL)
    rows = list(layer_rows(setting, "f", lambda _: entries, [shape], ["layer"], measure))
    parts = [(row.params or {})["part"] for row in rows]
    assert parts == ["sort, pack, hash", "search", "post-processing", "products"]
    assert all(row.checked and row.gpu_busy_ms >= 0 for row in rows)


def test_the_parts_of_a_layer_are_told_apart_by_name() -> None:
    names = {
        "gather_kernel": "gather",
        "aten::index_select": "gather",
        "scatter_slots_kernel": "scatter",
        "aten::index_add_": "scatter",
        "nvjet_hsh_128x64": "products",
        "sm90_xmma_gemm_f16f16": "products",
        "aten::mm": "products",
        "weight_stationary_kernel": "products",
        "implicit_gemm": "products",
        "void at::native::vectorized_elementwise_kernel": "rest",
    }
    assert {name: part_of(name) for name in names} == names


def test_slots_have_their_triplets() -> None:
    rows = rows_of(FIGURES, "torchsparse_fig12", of_layers(scenes=SMALL))
    rows = [row for row in rows if row.k == 3]
    pairs = [(row.params or {})["pairs"] for row in rows]
    assert len(pairs) == 27
    assert pairs == pairs[::-1], "a submanifold map is symmetric"
    assert pairs[13] == SMALL[0].grid.rows
    assert sum(pairs) == rows[0].triplets
    params = [row.params or {} for row in rows_of(FIGURES, "spira_fig3b", of_layers(scenes=SMALL))]
    assert [p["norm"] for p in params] == list(range(7))
    assert params[0]["filled_percent"] == 100
    assert all(0 < p["filled_percent"] < 100 for p in params[1:])


def test_thresholds_run_from_all_sparse_to_all_dense() -> None:
    for size, largest in ((3, 3), (5, 6)):
        entries = engines.thresholds(size)
        assert [params["t"] for _, params in entries] == list(range(largest + 2))
        names = [engine.dataflow.name for engine, _ in entries]
        assert names[0] == "weight_stationary"
        assert names[-1].startswith("output_stationary")
        assert names[1:-1] == [f"hybrid_{t}" for t in range(1, largest + 1)]


def test_a_grouping_is_searched_on_one_scene_and_used_on_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def timed(calls: Calls, *_: object) -> Timing:
        calls(0)()
        return Timing.of([1.0])

    monkeypatch.setattr(grouping, "wall_time", timed)
    rows = rows_of(FIGURES, "torchsparse_table1", of_layers())
    assert not left_out(rows)
    places = {(row.workload, (row.params or {})["searched_on"]) for row in rows}
    names = [scene.name for scene in SCENES]
    assert places == {(a, b) for a in names for b in names}
    rows = rows_of(FIGURES, "torchsparse_table1_models", of_layers(scenes=SCENES[1:]))
    assert not left_out(rows)
    found = {(row.c_in, (row.params or {})["searched_for"]) for row in rows}
    assert found == {(c, f"width {w}") for c in (16, 32, 48, 96) for w in ("1", "0.5")}


def test_products_of_a_layer_are_timed_one_by_one_and_in_batches() -> None:
    rows = rows_of(FIGURES, "torchsparse_fig7", of_layers(scenes=SCENES[1:]))
    assert [(row.params or {})["batch"] for row in rows] == [1, 2, 13, 26]
    first, *_, last = rows
    assert (first.checked, first.c_in, first.k) == (True, 32, 3)
    assert (last.params or {})["gflop"] == 2 * 26 * (last.params or {})["rows"] * 32 * 32 / 1e9


def test_layers_come_kernel_by_kernel_where_they_are_wanted() -> None:
    one, other = LayerShape(4, 4, 3), LayerShape(8, 8, 3)
    setting = of_layers(shapes=(one, LayerShape(4, 4, 5), other))
    wanted = wanted_at(setting, "street", None, None)
    assert list(wanted) == [Kernel.of(3), Kernel.of(5)]
    assert wanted[Kernel.of(3)] == [(one, list(KINDS)), (other, list(KINDS))]
    setting = of_layers(shapes=(one,), places={"street": {one: ["layer", "map+train"]}})
    for words, kinds in (
        (("street", None, None), ["layer", "map+train"]),
        (("street", None, ["layer"]), ["layer"]),
        (("elsewhere", None, None), None),
        (("elsewhere", [one], ["layer"]), ["layer"]),
    ):
        assert wanted_at(setting, *words) == ({Kernel.of(3): [(one, kinds)]} if kinds else {})


def test_a_wrong_layer_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., torch.Tensor] = layer_file.convolution
    monkeypatch.setattr(layer_file, "convolution", lambda *a, **k: 1.01 * right(*a, **k))
    rows = list(layer_rows(of_layers(scenes=SMALL), "layers"))
    assert len(rows) == len(left_out(rows)) == len(KINDS)
    assert all("out is off" in reason for reason in left_out(rows))


def test_an_engine_that_does_not_serve_is_named() -> None:
    class Refuses:
        name = "refuses"

        def build(self, *_: object) -> None:
            raise ValueError("no such kernel")

    engine = replace(resolve("reference"), name="broken", builder=Refuses())
    entries = [(engine, {"t": 1})]
    (row,) = layer_rows(of_layers(scenes=SMALL), "f", lambda _: entries, SHAPES[:1], ["layer"])
    assert row.params == {"t": 1, "left_out": "ValueError: no such kernel"}


def test_tf32_is_allowed_only_where_it_is_asked_for() -> None:
    switch = torch.backends.cuda.matmul
    before = switch.allow_tf32
    for dtype in ("tf32", "float32", "float16"):
        with products_of(dtype):
            assert switch.allow_tf32 == (dtype == "tf32")
        assert switch.allow_tf32 == before
