from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pcnn.bench.layers import dataflows
from pcnn.bench.layers.figures import FIGURES
from pcnn.bench.layers.parts import part_of
from pcnn.bench.layers.setting import LayerShape, Setting
from pcnn.bench.rows import Header, Row, write_rows
from pcnn.bench.scenes import Scene, noise
from pcnn.bench.suite import chosen_figures, draw
from pcnn.geometry import grid_of_cells
from pcnn.ops.engine import resolve

CPU = torch.device("cpu")
CELLS = torch.from_numpy(noise(200, fill=0.3))
SCENES = [Scene("small", grid_of_cells(CELLS)), Scene("half", grid_of_cells(CELLS[:100]))]
#: Profiling a CPU takes a second a call.
SLOW = ("torchsparse_table2", "torchsparse_table3", "minuet_fig4")
NEEDS_CUDA = ("spira_fig11", "spira_fig14")
EVERY = [
    pytest.param(figure, id=figure.name, marks=[pytest.mark.slow] if figure.name in SLOW else [])
    for figure in FIGURES
]


def setting(device: str = "cpu") -> Setting:
    shapes = (LayerShape(4, 4, 3),)
    return Setting(torch.device(device), SCENES, [resolve("auto")], shapes, repeats=3, count=False)


def rows_of(name: str, device: str = "cpu") -> list[Row]:
    (figure,) = chosen_figures([name], FIGURES)
    return list(figure.measure(setting(device), name))


@pytest.mark.parametrize("figure", EVERY)
def test_a_figure_is_measured_and_drawn(figure, tmp_path: Path) -> None:
    rows = rows_of(figure.name)
    if figure.name in NEEDS_CUDA:
        assert not rows
        return
    assert rows
    for row in rows:
        assert row.figure == figure.name
        assert "left_out" not in (row.params or {}), row.params
    path = write_rows(tmp_path / "layers.json", Header("cpu", "2.6.0", "abc", "2026-01-31"), rows)
    assert draw(path, FIGURES)


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_setting_of_a_figure_is_served_on_a_gpu(figure) -> None:
    rows = rows_of(figure.name, "cuda")
    assert rows
    assert not [row.params for row in rows if "left_out" in (row.params or {})]


def test_slots_have_their_triplets() -> None:
    rows = [row for row in rows_of("torchsparse_fig12") if row.workload == "small" and row.k == 3]
    pairs = [(row.params or {})["pairs"] for row in rows]
    assert len(pairs) == 27
    assert pairs == pairs[::-1], "a submanifold map is symmetric"
    assert pairs[13] == SCENES[0].grid.rows
    assert sum(pairs) == rows[0].triplets


def test_slots_are_filled_by_norm() -> None:
    rows = [row for row in rows_of("spira_fig3b") if row.workload == "small"]
    params = [row.params or {} for row in rows]
    assert [p["norm"] for p in params] == list(range(7))
    assert params[0]["filled_percent"] == 100
    assert all(0 < p["filled_percent"] < 100 for p in params[1:])


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


def test_thresholds_run_from_all_sparse_to_all_dense() -> None:
    for size, largest in ((3, 3), (5, 6)):
        entries = dataflows.thresholds(size)
        assert [params["t"] for _, params in entries] == list(range(largest + 2))
        names = [engine.dataflow.name for engine, _ in entries]
        assert names[0] == "weight_stationary"
        assert names[-1].startswith("output_stationary")
        assert names[1:-1] == [f"hybrid_{t}" for t in range(1, largest + 1)]


def test_a_grouping_is_searched_on_one_scene_and_used_on_all() -> None:
    rows = rows_of("torchsparse_table1")
    places = {(row.workload, (row.params or {})["searched_on"]) for row in rows}
    assert places == {(a, b) for a in ("small", "half") for b in ("small", "half")}
