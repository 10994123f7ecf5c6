"""Rows and chart of training steps: how long they take, and where the time goes."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from pcnn.bench.charts import View
from pcnn.bench.rows import Row
from pcnn.bench.step.ranges import ActionRanges
from pcnn.bench.step.reading import Spent, StepTrace, read_steps
from pcnn.bench.step.watch import StepWatch
from pcnn.bench.suite import Figure
from pcnn.bench.training import Training
from pcnn.bench.verify import CheckFailed

#: The rest of a part, of which the largest are named.
REST = "all others"
IDLE = "idle"


@dataclass(frozen=True, kw_only=True)
class TracedTraining(Training):
    """A training whose steps are looked into.

    Args:
        traced: steps behind the timed ones, which are looked into.
        most: names that are told of kernels, modules, functions and waits each.
    """

    traced: int
    most: int


def step_rows(training: TracedTraining, figure: str) -> Iterator[Row]:
    """Train, and yield a row of the steps, then rows of what they are made of.

    ``wall_ms`` is the time of a step; the device is waited for after the last one only. Busy time,
    launches and waits are those of the traced steps, under the profiler: the device works as fast
    as without it, the host does not.

    Raises:
        CheckFailed: a loss is not finite.
    """
    ranges = ActionRanges()
    watch = StepWatch(training.warm_up, training.steps, training.traced, ranges)
    trainer = training.trainer([watch], watch.total)
    trainer.profiler = ranges  # type: ignore[attr-defined]  # set where mypy cannot see it
    trainer.fit(training.task(), training.module)
    losses = torch.stack(watch.losses)
    if not bool(torch.isfinite(losses).all()):
        raise CheckFailed(f"{training.model}: a loss of the training is not finite")
    trace = read_steps(watch.events, training.traced)
    on_gpu = training.where.type == "cuda"
    yield whole(training, watch, trace, figure, on_gpu)
    step = 1e3 * watch.seconds / training.steps
    if on_gpu:
        phases = {**trace.phases, IDLE: Spent(max(step - trace.busy_ms, 0.0))}
        yield from parts(training, figure, "phase", phases, len(phases))
        yield from parts(training, figure, "kernel", trace.kernels, training.most)
        yield from parts(training, figure, "module", trace.modules, training.most)
        yield from parts(training, figure, "wait", trace.waits, training.most)
    yield from parts(training, figure, "function", trace.functions, training.most)


def whole(training: Training, watch: StepWatch, trace: StepTrace, figure: str, gpu: bool) -> Row:
    """The row of whole steps."""
    step = 1e3 * watch.seconds / training.steps
    each = sorted(1e3 * seconds for seconds in watch.each)
    found: dict[str, int | float | str] = {
        "steps_per_second": round(training.steps / watch.seconds, 2),
        "median_ms": round(statistics.median(each), 3),
        "data_share": round(watch.waited / watch.seconds, 4),
        "loss": float(watch.losses[-1]),
        "steps": training.steps,
        "batch_size": int(training.module.batch_size),
        "workers": int(training.module.workers),
        "cores": len(os.sched_getaffinity(0)),
    }
    steady = [s for s, is_steady in zip(watch.each, watch.steady, strict=True) if is_steady]
    if steady:
        found["steady_steps"] = len(steady)
        found["steady_ms"] = round(1e3 * sum(steady) / len(steady), 3)
    if gpu:
        if steady:
            idle = 1 - trace.busy_ms / float(found["steady_ms"])
            found["steady_idle_share"] = round(max(idle, 0.0), 4)
        found |= {
            "idle_share": round(max(1 - trace.busy_ms / step, 0.0), 4),
            "allocations": round(watch.allocations / training.steps),
            "driver_allocations": round(watch.segments / training.steps, 2),
        }
    return Row(
        what="training",
        workload=training.workload,
        engine=training.engine,
        n=watch.rows // training.steps,
        dtype=training.precision,
        model=training.model,
        wall_ms=step,
        min_ms=each[0],
        p90_ms=each[min(len(each) * 9 // 10, len(each) - 1)],
        gpu_busy_ms=trace.busy_ms if gpu else None,
        launches=round(trace.launches) if gpu else None,
        syncs=round(sum(spent.count for spent in trace.waits.values())) if gpu else None,
        memory_mb=watch.memory_mb,
        params={**found, **training.about},
        figure=figure,
        checked=True,
    )


def parts(
    training: Training, figure: str, part: str, found: Mapping[str, Spent], most: int
) -> Iterator[Row]:
    """A row for each of the longest, and one for all others."""
    named = dict(list(found.items())[:most])
    others = [spent for name, spent in found.items() if name not in named]
    if others:
        named[REST] = Spent(sum(s.ms for s in others), sum(s.count for s in others))
    for name, spent in named.items():
        yield Row(
            what="part",
            workload=training.workload,
            engine=training.engine,
            dtype=training.precision,
            model=training.model,
            params={
                "part": part,
                "name": name,
                "ms": round(spent.ms, 4),
                "count": round(spent.count, 1),
            },
            figure=figure,
        )


def is_phase(row: Row) -> bool:
    """Whether a row is what the device does for one thing."""
    return (row.params or {}).get("part") == "phase"


FIGURES: tuple[Figure[TracedTraining], ...] = (
    Figure(
        "step",
        "where the time of a training step goes",
        "",
        step_rows,
        (
            View(
                "ms",
                "words",
                "name",
                "=device",
                kind="stacked",
                label="time of the device in a step [ms]",
                where=is_phase,
            ),
        ),
    ),
)
