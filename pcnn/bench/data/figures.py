"""The figures of the data suite."""

from __future__ import annotations

from pcnn.bench.data.loop import loop_rows
from pcnn.bench.data.measured import Setting
from pcnn.bench.data.stages import stage_rows
from pcnn.bench.suite import Figure

FIGURES: tuple[Figure[Setting], ...] = (
    Figure("stages", "time of one core for a training sample", "", stage_rows),
    Figure("loop", "share of a training's time that waits for data", "", loop_rows),
)
