"""The figures of the data suite."""

from __future__ import annotations

from collections.abc import Sequence

from pcnn.bench.charts import Chart
from pcnn.bench.data.loop import loop_rows
from pcnn.bench.data.measured import Setting
from pcnn.bench.data.stages import stage_rows
from pcnn.bench.rows import Row
from pcnn.bench.suite import Figure


def no_chart(rows: Sequence[Row]) -> list[Chart]:
    """A handful of numbers is read as a table."""
    return []


FIGURES: tuple[Figure[Setting], ...] = (
    Figure("stages", "time of one core for a training sample", "", stage_rows, no_chart),
    Figure("loop", "share of a training's time that waits for data", "", loop_rows, no_chart),
)
