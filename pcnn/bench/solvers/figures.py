"""Solvers of registration on the same matches, each checked, then timed pair by pair."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pcnn.bench.charts import View
from pcnn.bench.environment import processor
from pcnn.bench.harness import Repeats, Timing, percentile, rounded, same, wall_times
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, Columns, run
from pcnn.bench.setting import Setting
from pcnn.bench.solvers.lines import Line, check_line
from pcnn.bench.solvers.pairs import MatchedPair
from pcnn.bench.suite import Figure
from pcnn.metrics.registration.bootstrap import mean_with_other_scenes


@dataclass(frozen=True)
class SolversSetting(Setting):
    """What is compared, made by the command.

    Args:
        pairs: by the name of their list, on the CPU.
        lines: the solvers.
        distance: largest residual of a match that agrees [m].
        about: settings that rows tell.
    """

    pairs: Any = None
    lines: Any = None
    distance: float = 0.0
    about: Any = None


def solver_rows(setting: SolversSetting, figure: str) -> Iterator[Row]:
    """Every solver on every list of pairs."""
    for workload, pairs in setting.pairs.items():
        yield from run(_cases(setting, figure, workload, pairs), setting)


def _cases(
    setting: SolversSetting, figure: str, workload: str, pairs: list[MatchedPair]
) -> Iterator[Case]:
    matches = int(statistics.median(len(pair.source) for pair in pairs))
    for line in setting.lines:
        on_cpu = line.where.type == "cpu"
        params = {
            **setting.about,
            "on": processor() if on_cpu else line.where.type,
            "pairs": len(pairs),
            "scenes": len({pair.scene for pair in pairs}),
        }
        name = line.name if on_cpu else f"{line.name} on the GPU"
        row = Row("solver", workload, name, n=matches, params=params, figure=figure)

        def check(row: Row = row, line: Line = line) -> Checked:
            proof = check_line(row, line, setting.distance)
            return proof, lambda: (line, pairs)

        yield Case(row, check, over_pairs)


def over_pairs(
    found: tuple[Line, list[MatchedPair]], setting: Setting, _: bool
) -> Iterator[Columns]:
    """One row: recall and errors over all pairs, and the time of a pair.

    A pair's time is the median of its repeats, from matches on the device to the transform on the
    host; columns are over pairs. ``host_ms`` is the time of all cores together, on a CPU: other
    work on the machine changes it little. Errors are medians over the pairs that are right.
    """
    line, pairs = found
    scenes = np.unique([pair.scene for pair in pairs], return_inverse=True)[1]
    often = Repeats(setting.repeats, 1, setting.budget)
    times, busy, judged = [], [], []
    for pair in pairs:
        solve = _Watched(partial(line.solve, pair.to(line.where)))
        times.append(statistics.median(wall_times(same(solve), line.where, often, on_host=True)))
        busy.append(statistics.median(solve.milliseconds[1:]))
        judged.append(pair.errors(solve()))
    right = np.array([one for one, _, _ in judged])
    recall = mean_with_other_scenes(right.astype(float), scenes)
    said = {name: round(100 * getattr(recall, of), 1) for name, of in _RECALL.items()}
    for name, values, digits in (
        ("rre_deg", [angle for one, angle, _ in judged if one], 3),
        ("rte_m", [shift for one, _, shift in judged if one], 4),
    ):
        if values:
            said[name] = round(statistics.median(values), digits)
    columns = Timing.of(times).columns(tails=True)
    if line.where.type == "cpu":
        said["host_mean_ms"] = round(statistics.mean(busy), 3)
        said["host_p95_ms"] = round(percentile(busy, 95), 3)
        columns |= rounded(host_ms=statistics.median(busy))
    yield {**columns, "params": said}


class _Watched:
    """A call, and the time of all cores that each of its runs took [ms]."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.milliseconds: list[float] = []

    def __call__(self) -> Any:
        began = time.process_time()
        found = self.call()
        self.milliseconds.append(1e3 * (time.process_time() - began))
        return found


_RECALL = {"rr": "value", "rr_low": "low", "rr_high": "high"}

FIGURES: tuple[Figure[SolversSetting], ...] = (
    Figure(
        "solvers",
        "registration by several solvers on the same matches",
        "",
        solver_rows,
        (
            View(
                "rr", "engine", "engine", "workload", label="registration recall [%]", suffix="rr"
            ),
            *(
                View(
                    field,
                    "engine",
                    "engine",
                    "workload",
                    kind="points",
                    label=label,
                    log=True,
                    suffix=suffix,
                )
                for field, label, suffix in (
                    ("wall_ms", "median time of a pair [ms]", "time"),
                    ("host_ms", "median time of all cores for a pair [ms]", "cores"),
                )
            ),
        ),
    ),
)
