"""The one loop of all suites: a case is checked against float64, then timed, then recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from pcnn.bench.harness import Calls, Repeats, measure, rounded
from pcnn.bench.rows import Row, left_out
from pcnn.bench.setting import Setting
from pcnn.bench.trace import KernelTime, Trace, trace
from pcnn.bench.turns import measuring
from pcnn.bench.verify import Proof

#: Columns of one row that a measurement makes; ``params`` are added to those of the case.
Columns = Mapping[str, Any]
#: Makes rows of what a check hands over. It is told whether launches are counted.
Measure = Callable[[Any, Setting, bool], Iterable[Columns]]
#: The proof, and how the calls, or all that else is measured, are made once the clock is ready.
Checked = tuple[Proof, Callable[[], Any]]


def whole(calls: Calls, setting: Setting, count: bool, warmup: int = 3) -> Iterator[Columns]:
    """One row: the call in every way that its device knows."""
    often = Repeats(setting.repeats, warmup, setting.budget)
    yield measure(calls, setting.where, often, cold=setting.cold, count=count)


@dataclass(frozen=True, eq=False)
class Case:
    """One call to be measured.

    Args:
        row: what its rows say, without times.
        check: builds the call and compares its result with the reference. Its error leaves the case
            without times.
        measure: makes rows of what ``check`` hands over.
    """

    row: Row
    check: Callable[[], Checked]
    measure: Measure = whole


#: A row, what is measured of it, and how.
_Admitted = tuple[Row, Callable[[], Any], Measure]


def run(cases: Iterable[Case], setting: Setting) -> Iterator[Row]:
    """Check all cases, then time those that pass, in turn and run by run.

    Cases of one call share references, which may take gigabytes: these are given back before
    anything is timed. A case that is wrong, or cannot be served, becomes a row without times whose
    setting ``left_out`` holds the error.

    Args:
        cases: what is compared with each other.
        setting: how often and how long to measure.
    """
    admitted: list[_Admitted] = []
    for found in map(_checked, cases):  # no case is kept, nor its references
        if isinstance(found, Row):
            yield found
        else:
            admitted.append(found)
    for number in range(setting.runs):
        for row, made, measured in admitted:
            own = replace(row, run=number) if setting.runs > 1 else row
            try:
                with measuring():
                    for columns in measured(made(), setting, setting.count and number == 0):
                        yield recorded(own, columns)
            except Exception as error:  # out of memory, at the full size only
                yield left_out(own, error)


def _checked(case: Case) -> _Admitted | Row:
    try:
        proof, made = case.check()
        proof.admit(case.row)
    except Exception as error:  # a compiler's errors have no base of their own
        return left_out(case.row, error)
    return case.row, made, case.measure


def recorded(row: Row, columns: Columns) -> Row:
    """A row with what was measured of a case that has passed its check."""
    params = {**(row.params or {}), **columns.get("params", {})}
    return replace(row, **{**columns, "params": params or None, "checked": True})


def parts(
    split: Callable[[Sequence[KernelTime]], Mapping[str, float]],
    name: str = "part",
    kept: Sequence[str] | None = None,
) -> Measure:
    """Measurement of a row a part of a call, read off its trace: ``gpu_busy_ms``.

    Args:
        split: sums a timeline up by part [ms].
        name: setting that names the part.
        kept: parts that become rows; ``None``: all.
    """

    def rows(calls: Calls, setting: Setting, count: bool) -> Iterator[Columns]:
        spent = split(middle_timeline(calls, setting.where))
        if any(spent.values()):  # the profiler tells nothing elsewhere
            yield from part_columns(spent, name, kept)

    return rows


def part_columns(
    spent: Mapping[str, float], name: str = "part", kept: Sequence[str] | None = None
) -> Iterator[Columns]:
    """Columns of a row a part."""
    for part in spent if kept is None else kept:
        yield {**rounded(gpu_busy_ms=spent[part]), "params": {name: part}}


def middle_timeline(calls: Calls, device: torch.device) -> Sequence[KernelTime]:
    """Launches of the one of three traces whose device time is the median."""
    return middle_trace([trace(calls(0), device) for _ in range(3)]).timeline


def middle_trace(traces: Sequence[Trace]) -> Trace:
    """The trace whose device time is the median of several."""
    return sorted(traces, key=lambda seen: seen.busy_ms)[len(traces) // 2]
