from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pcnn.bench.charts import charts
from pcnn.bench.networks.dataflows import MINUET_STEPS, SPIRA_STEPS, with_papers
from pcnn.bench.networks.dataflows import steps as dataflow_steps
from pcnn.bench.networks.figures import FIGURES
from pcnn.bench.networks.measured import Setting
from pcnn.bench.rows import Header, Row, write_rows
from pcnn.bench.scenes import Scene, noise
from pcnn.bench.suite import draw
from pcnn.geometry import grid_of_cells
from pcnn.ops.engine import resolve

SMALL = Scene("small", grid_of_cells(torch.from_numpy(noise(200, fill=0.3))))
CPU = torch.device("cpu")
#: Profiling a CPU takes a second a call.
SLOW = ("torchsparse_fig4", "minuet_fig20")
NEEDS_CUDA = ("spira_table1",)
SETTING = Setting(
    CPU,
    [SMALL],
    [resolve("auto")],
    width=0.25,
    repeats=3,
    check_voxels=300,
    models=("sparse_resnet", "minkunet"),
    sizes=(1000,),
    kernel_sizes=(3, 5),
)
EVERY = [
    pytest.param(figure, id=figure.name, marks=[pytest.mark.slow] if figure.name in SLOW else [])
    for figure in FIGURES[1:]
]


@pytest.mark.parametrize("figure", EVERY)
def test_a_figure_is_measured_and_drawn(figure, tmp_path: Path) -> None:
    rows = list(figure.measure(SETTING, figure.name))
    if figure.name in NEEDS_CUDA:
        assert not rows
        return
    assert rows
    for row in rows:
        assert "left_out" not in (row.params or {}), row.params
        assert row.figure == figure.name
        assert row.checked or row.engine == "choice"
    header = Header("cpu", "2.6.0", "abc", "2026-01-31")
    path = write_rows(tmp_path / "networks.json", header, rows)
    assert draw(path, FIGURES)


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("figure", FIGURES[1:], ids=lambda figure: figure.name)
def test_every_setting_of_a_figure_is_served_on_a_gpu(figure) -> None:
    setting = replace(SETTING, device=torch.device("cuda"), dtype="float16")
    rows = list(figure.measure(setting, figure.name))
    assert rows
    assert not [row.params for row in rows if "left_out" in (row.params or {})]


def test_time_kernels_and_memory_of_a_training_step_are_drawn(tmp_path: Path) -> None:
    params = {"mode": "train"}
    times = {"wall_ms": 9.0, "min_ms": 8.5, "gpu_busy_ms": 7.5}
    measured = {"checked": True, "memory_mb": 512.0, **times}
    row = Row(
        "network", "small", "auto", model="minkunet", params=params, figure="networks", **measured
    )
    assert {chart.suffix for chart in charts(FIGURES[0].views, [row])} == {
        "train",
        "train_busy",
        "train_memory",
    }
    header = Header("cpu", "2.6.0", "abc", "2026-01-31")
    path = write_rows(tmp_path / "networks.json", header, [row])
    assert len(draw(path, FIGURES)) == 3
    # and what nobody measured is not drawn
    assert len(charts(FIGURES[0].views, [replace(row, gpu_busy_ms=None, memory_mb=None)])) == 1


@pytest.mark.gpu
@pytest.mark.long
def test_a_training_step_tells_its_memory_and_its_kernels() -> None:
    setting = replace(SETTING, device=torch.device("cuda"), models=("minkunet",))
    whole, step = (
        next(iter(FIGURES[0].measure(replace(setting, modes=(mode,)), "networks")))
        for mode in ("train", "step")
    )
    for row in (whole, step):
        assert row.checked, row.params
        assert row.memory_mb > 0
        assert 0 < row.gpu_busy_ms <= row.wall_ms
    # the plan is inside the one, and beforehand in the other
    assert whole.launches > step.launches
    assert whole.gpu_busy_ms > step.gpu_busy_ms


def test_steps_of_a_paper_end_with_ours() -> None:
    for steps in (MINUET_STEPS, SPIRA_STEPS):
        entries = dataflow_steps("name", CPU, steps)
        assert entries[-1] == (resolve("auto"), {"step": "ours, planned"})
    assert len(entries) == 1, "hybrids need a GPU"


def test_the_papers_engines_stand_beside_those_that_are_asked_for() -> None:
    entries = with_papers([resolve("auto"), replace(resolve("auto"), name="minuet")], CPU)
    assert [engine.name for engine, _ in entries] == ["auto", "minuet", "torchsparse"]
