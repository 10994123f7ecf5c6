"""A drive: scans of varying size one after another, beside graphs captured for each alone.

A graph serves a scan in the bucket that holds it, so rows up to the bucket's capacity are computed
for nothing. How much that costs is the ratio of two medians: of the shared graph, and of one that
was captured for exactly that scan (rounded up to whole tiles of rows). Both answer it in turns, so
that clocks and caches are the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pcnn.bench.clouds import Cloud
from pcnn.bench.harness import Repeats, Timing, percentile, wall_times
from pcnn.bench.latency.cases import (
    DEVICE,
    HOST,
    Task,
    checked_task,
    gates,
    latency_row,
    sites_of,
)
from pcnn.bench.latency.gate import Gate
from pcnn.bench.latency.runners import EAGER, GRAPH, Line
from pcnn.bench.latency.scans import copies, name_of_drive, sizes_of_drive
from pcnn.bench.latency.setting import LatencySetting
from pcnn.bench.native.network import Points
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, Columns, run
from pcnn.bench.setting import Setting
from pcnn.bench.trace import Call
from pcnn.bench.verify import Proof

#: Calls of every scan, of a graph and of the one captured for it.
TURNS = 15
#: Follows the name of the line in rows of graphs captured for one scan each.
EXACT = "graph of that size"


@dataclass(frozen=True, eq=False)
class Drive:
    """A task over a drive, and the means to capture a graph for one of its scans.

    Args:
        task: the line's runner and the scans.
        gate: makes graphs.
        line: the line.
        row: what its rows say.
        sites: number of finest sites of every scan.
    """

    task: Task
    gate: Gate
    line: Line
    row: Row
    sites: Sequence[int]


def drive_rows(setting: LatencySetting, figure: str) -> Iterator[Row]:
    """Every model over every drive, by graph and eager: one row for all of it, and one a scan."""
    for gate, clouds in _drives(setting):
        yield from run(_cases(setting, figure, gate, clouds), setting)


def _drives(setting: LatencySetting) -> Iterator[tuple[Gate, list[Cloud]]]:
    """The folder's scans, or the copies of every fixed scan."""
    if setting.driven:
        for gate, _ in gates(setting.having(clouds=setting.driven[:1])):
            yield gate, setting.driven
        return
    for gate, cloud in gates(setting):
        yield gate, copies(cloud, sizes_of_drive(cloud, setting.scans))


def _cases(
    setting: LatencySetting, figure: str, gate: Gate, clouds: Sequence[Cloud]
) -> Iterator[Case]:
    scans = [gate.scan(cloud) for cloud in clouds]
    sites = [sites_of(cloud, setting) for cloud in clouds]
    least, most = (of(len(cloud.points) for cloud in clouds) for of in (min, max))
    name = clouds[0].name if setting.drive is None else name_of_drive(setting.drive)
    said: dict[str, Any] = {"points": f"{least}-{most}"}
    said["scans" if setting.driven else "copies"] = len(clouds)
    for line in setting.lines:
        if line.name in (GRAPH, EAGER):
            row = latency_row(setting, name, gate, line.name, figure, said)
            row = replace(row, n=max(sites))

            def check(row: Row = row, line: Line = line) -> Checked:
                drive = Drive(checked_task(gate, line, row, scans), gate, line, row, sites)
                return Proof(row), lambda: drive

            yield Case(row, check, over_drive)


def over_drive(drive: Drive, setting: Setting, count: bool) -> Iterator[Columns]:
    """Rows of a drive: all scans in turn from device and from host, then every scan."""
    task, where = drive.task, setting.where
    often = Repeats(max(setting.repeats, 10 * len(task.scans)), len(task.scans), 3 * setting.budget)
    taken = wall_times(task.calls(), where, often)
    whole: dict[str, Any] = {**task.said, "mode": DEVICE}
    if drive.line.is_graph:
        rows, ratios, tails = _beside_exact(drive, setting)
        whole |= {
            "over_exact_median": round(statistics.median(ratios), 3),
            "over_exact_p99": round(percentile(ratios, 99), 3),
            "p99_over_exact": round(tails, 3),
        }
        yield from rows
    else:
        for number, times in enumerate(_turns(taken, len(task.scans))):
            yield _of_scan(times, task.scans[number], drive.sites[number])
    yield {**Timing.of(taken).columns(tails=True), "cache": "warm", "params": whole}
    taken = wall_times(task.host_calls(), where, often, on_host=True)
    host = {**task.said, "mode": HOST}
    yield {**Timing.of(taken).columns(tails=True), "cache": "warm", "params": host}


def _turns(times: Sequence[float], among: int) -> list[Sequence[float]]:
    """Times of each of several calls that took turns; calls that had none are left out."""
    return [times[number::among] for number in range(min(among, len(times)))]


def _of_pair(pair: Sequence[Call], index: int) -> Call:
    return pair[index % len(pair)]


def _of_scan(
    times: Sequence[float], scan: Points, sites: int, engine: str | None = None
) -> Columns:
    said = {"mode": "scan", "points": len(scan.points)}
    columns = {**Timing.of(times).columns(), "n": sites, "cache": "warm", "params": said}
    return columns if engine is None else {**columns, "engine": engine}


def _beside_exact(drive: Drive, setting: Setting) -> tuple[list[Columns], list[float], float]:
    """Rows of every scan by the shared graph and by its own, ratios, and the ratio of p99s."""
    rows: list[Columns] = []
    ratios: list[float] = []
    all_shared: list[float] = []
    all_exact: list[float] = []
    for scan, sites in zip(drive.task.scans, drive.sites, strict=True):
        own = drive.gate.made(drive.line, exactly=True)
        drive.gate.agreement(drive.row, own, scan)
        pair = Task(drive.task.runner, [scan]).calls()(0), Task(own, [scan]).calls()(0)
        turns = Repeats(2 * TURNS, 4, setting.budget)
        shared, exact = _turns(wall_times(partial(_of_pair, pair), setting.where, turns), 2)
        ratios.append(statistics.median(shared) / statistics.median(exact))
        all_shared += shared
        all_exact += exact
        rows.append(_of_scan(shared, scan, sites))
        rows.append(_of_scan(exact, scan, sites, EXACT))
    tails = percentile(all_shared, 99) / percentile(all_exact, 99)
    return rows, ratios, tails
