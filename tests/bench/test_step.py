"""`pcnn bench step` looks into a real training, and sums a trace up rightly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import pcnn
from pcnn.bench.charts import charts
from pcnn.bench.rows import Row, read_rows
from pcnn.bench.step.figures import FIGURES, parts
from pcnn.bench.step.ranges import ACTION, MODULE, ActionRanges, module_ranges
from pcnn.bench.step.reading import Spent, busy_of, read_steps, short
from pcnn.cli.commands import app
from pcnn.nn.fused import is_hooked
from tests.datasets.clouds import write_scan


def event(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


def launch(ts: float, number: int, tid: int = 1) -> dict[str, Any]:
    return event("cuda_runtime", "cudaLaunchKernel", ts, 1, tid, correlation=number)


def kernel(name: str, ts: float, dur: float, number: int) -> dict[str, Any]:
    return event("kernel", name, ts, dur, 7, correlation=number)


TRACE = [
    event(
        "python_function", "/x/site-packages/pcnn/tasks/segmentation.py(9): training_step", 0, 90
    ),
    event("user_annotation", f"{ACTION}[Strategy]One.training_step", 0, 100),
    event("user_annotation", f"{MODULE}net.block", 10, 20),
    event("cpu_op", "_Convolution", 11, 10, **{"Sequence number": 5}),
    launch(12, 1),
    event("user_annotation", f"{MODULE}loss", 40, 10),
    launch(41, 2),
    launch(60, 3),
    event("python_function", "/x/pcnn/runtime/step_graph.py(7): forward", 62, 7),
    event("python_function", "/x/pcnn/runtime/fixed_input.py(7): take", 63, 2),
    launch(64, 8),
    launch(66, 9),
    event("python_function", "/x/site-packages/lightning/core.py(3): log", 70, 15),
    event("cuda_runtime", "cudaStreamSynchronize", 71, 9),
    event("python_function", "/x/site-packages/pcnn/bench/step/watch.py(9): wait_for", 86, 3),
    event("cuda_runtime", "cudaDeviceSynchronize", 87, 1),
    # the engine's own thread
    event("cpu_op", "autograd::engine::evaluate_function: X", 100, 20, 2, **{"Sequence number": 5}),
    launch(101, 4, 2),
    event("user_annotation", f"{ACTION}[LightningModule]Task.optimizer_step", 130, 20),
    launch(131, 5),
    event("user_annotation", f"{ACTION}[Callback]FiniteSteps.on_train_batch_end", 160, 20),
    launch(161, 6),
    kernel("product", 20, 100, 1),
    kernel("sort", 120, 50, 2),
    kernel("product", 150, 50, 3),
    kernel("gradient", 200, 40, 4),
    kernel("step", 250, 30, 5),
    event("gpu_memset", "Memset", 280, 2, 7, correlation=6),
    kernel("place", 282, 4, 8),
    kernel("graph", 286, 6, 9),
]


def test_a_trace_is_summed_up() -> None:
    found = read_steps([*TRACE, {"ph": "i"}], 2)
    assert busy_of([one for one in TRACE if one["tid"] == 7]) == 20 + 80 + 50 + 30 + 32 + 40 + 10
    assert found.busy_ms == pytest.approx(262 / 2e3)
    assert found.launches == 4
    assert found.kernels["product"].ms == pytest.approx(150 / 2e3)
    assert next(iter(found.kernels)) == "product"  # the longest
    assert {name: spent.ms * 2e3 for name, spent in found.phases.items()} == pytest.approx(
        {
            "forward": 106,  # 6 of a graph
            "loss": 50,
            "rest of the step": 50,
            "backward": 40,
            "optimizer": 30,
            "plan and copy": 4,
            "callbacks": 2,
        }
    )
    assert found.modules["backward of net.block"].ms == pytest.approx(40 / 2e3)
    step, log = "pcnn/tasks/segmentation.py(9): training_step", "lightning/core.py(3): log"
    assert found.functions[step].ms == pytest.approx(65 / 2e3)
    assert found.functions[log] == Spent(15 / 2e3, 0.5)
    assert found.waits == {f"{log} in {step}": Spent(9 / 2e3, 0.5)}
    assert short("C:\\a\\pcnn\\ops\\x.py(3): f") == "pcnn/ops/x.py(3): f"


def test_the_chart_shows_what_the_device_does() -> None:
    training: Any = type(
        "T", (), {"workload": "w", "engine": "auto", "precision": "p", "model": "m"}
    )
    found = {"forward": Spent(3.0, 5), "loss": Spent(2.0, 4), "backward": Spent(1.0, 1)}
    rows = list(parts(training, "step", "phase", found, 2))
    names = [(row.params or {})["name"] for row in rows]
    assert names == ["forward", "loss", "all others"]
    other = Row(what="part", workload="w", engine="auto", params={"part": "kernel", "ms": 9.0})
    (chart,) = charts(FIGURES[0].views, [*rows, other])
    heights = {name: points[0].y for name, points in chart.panels[0].series.items()}
    assert heights == {"forward": 3.0, "loss": 2.0, "all others": 1.0}


def test_layers_keep_their_way_and_ranges_end() -> None:
    net = pcnn.nn.Sequential(pcnn.nn.Conv3d(4, 2, 3), torch.nn.BatchNorm1d(2))
    task = torch.nn.Module()
    task.net = net
    with module_ranges(task):
        assert is_hooked(net)
        assert not any(is_hooked(layer) for layer in net)
    assert not is_hooked(net)
    ranges = ActionRanges()
    ranges.start("before")
    ranges.on = True
    ranges.start("inside")
    ranges.stop("before")
    ranges.stop("inside")
    ranges.stop("never begun")


def test_rows_of_a_training(tmp_path: Path) -> None:
    write_scan(tmp_path / "kitti", 0, 0, 300)
    out = tmp_path / "step.json"
    words = "bench step model=minkunet model.width=0.125 trainer=cpu dataset.voxel_size=2.0"
    words += f" dataset.root={tmp_path / 'kitti'} dataset.num_workers=0 dataset.cache=false"
    words += f" --scans 3 --steps 2 --warm-up 1 --traced 1 --most 5 --out {out}"
    done = CliRunner().invoke(app, words.split(), env={"COLUMNS": "200"})
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    _, rows = read_rows(out)
    whole, *others = rows
    found = whole.params or {}
    assert (whole.what, found["steps"], found["graph"]) == ("training", 2, "false")
    assert 0 < (whole.min_ms or 0) <= (whole.wall_ms or 0)
    assert 0 < (whole.n or 0) <= 300
    assert whole.launches is None  # no device
    assert {(row.params or {})["part"] for row in others} == {"function"}
    assert len(others) == 6
    assert whole.workload == "minkunet kitti width=0.125 trainer=cpu voxel_size=2.0 links=3"
    assert str(tmp_path) not in out.read_text()
    assert "the host, by function" in done.output
