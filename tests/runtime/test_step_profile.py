"""A trace of training steps is summed up rightly, and `pcnn profile` looks into a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pcnn.runtime.step_profile import ACTION, MODULE, busy_of, read_steps
from tests.cli.invoking import invoke
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
    event("python_function", "/x/pcnn/graphs/own_steps.py(7): forward", 62, 7),
    event("python_function", "/x/pcnn/graphs/own_steps.py(7): plan", 63, 2),
    launch(64, 8),
    launch(66, 9),
    event("python_function", "/x/site-packages/lightning/core.py(3): log", 70, 15),
    event("cuda_runtime", "cudaStreamSynchronize", 71, 9),
    event(
        "python_function",
        "/x/pcnn/runtime/step_profile.py(9): on_train_batch_end",
        86,
        3,
    ),
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
    assert sum(count for _, count in found.kernels.values()) == 4
    assert found.kernels["product"][0] == pytest.approx(150 / 2e3)
    assert next(iter(found.kernels)) == "product"  # the longest
    assert {name: ms * 2e3 for name, (ms, _) in found.phases.items()} == pytest.approx(
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
    assert found.layers["backward of net.block"][0] == pytest.approx(40 / 2e3)
    step, log = "pcnn/tasks/segmentation.py(9): training_step", "lightning/core.py(3): log"
    assert found.waits == {f"{log} in {step}": (9 / 2e3, 0.5)}


def test_a_training_is_profiled(tmp_path: Path) -> None:
    for frame in range(3):
        write_scan(tmp_path / "kitti", 0, frame, 300)
    out, trace = tmp_path / "profile.json", tmp_path / "trace.json"
    words = "profile model=minkunet model.width=0.125 trainer=cpu dataset.voxel_size=2.0"
    words += f" dataset.root={tmp_path / 'kitti'} dataset.num_workers=0 dataset.cache=false"
    words += " dataset.train_sequences=[0] dataset.val_sequences=[]"
    words += f" --steps 2 --warm-up 1 --traced 1 --out {out} --trace {trace}"
    assert "step_ms" in invoke(*words.split())
    content = json.loads(out.read_text())
    assert content["device"] == "cpu"
    assert {"torch", "python", "pcnn"} <= set(content["versions"])
    step = content["step"]
    assert (step["steps"], 0 < step["rows"] <= 300) == (2, True)
    assert 0 < step["loader_share"] < 1
    assert json.loads(trace.read_text())["traceEvents"]
