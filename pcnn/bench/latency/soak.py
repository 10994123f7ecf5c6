"""Graphs over many clouds and many calls: the same outputs as eager, and memory that stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from pcnn.bench.clouds import Cloud
from pcnn.bench.latency.cases import Task, checked_task, gates, latency_row
from pcnn.bench.latency.gate import Gate
from pcnn.bench.latency.runners import Line
from pcnn.bench.latency.scans import cells_of, clouds_of_cells, copies, sizes_of_drive
from pcnn.bench.latency.setting import LatencySetting
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, Columns, run
from pcnn.bench.setting import Setting
from pcnn.bench.verify import Proof

#: Sizes that every comparison begins with: no point, one, two.
SMALLEST = (0, 1, 2)
#: Share of the calls after which memory must not grow any more.
SETTLED = 0.1
#: Readings of memory behind that.
READINGS = 18


def same_rows(setting: LatencySetting, figure: str) -> Iterator[Row]:
    """Graph against eager on clouds of every size: how many have the same bits, and the worst.

    Sizes are the smallest there are, those around every edge of a bucket as far as the
    scan reaches, and copies from a hundredth of the scan to all of it.
    """
    for gate, cloud in gates(setting):
        cases = (_same(setting, figure, gate, cloud, line) for line in _graphs(setting))
        yield from run(cases, setting)


def _graphs(setting: LatencySetting) -> list[Line]:
    return [line for line in setting.lines if line.is_graph]


def _same(setting: LatencySetting, figure: str, gate: Gate, cloud: Cloud, line: Line) -> Case:
    row = latency_row(setting, cloud.name, gate, line.name, figure, {"clouds": setting.same})

    def check() -> Checked:
        runner = gate.runner(line, row)
        clouds = clouds_of_every_size(cloud, setting.same, runner.edges(len(cloud.points)))
        found = [gate.agreement(row, runner, gate.scan(one)) for one in clouds]
        sizes = [len(one.points) for one in clouds]
        said = {
            "bitwise": sum(one.bitwise for one in found),
            "worst": f"{max(one.error for one in found):.1e}",
            "bound": f"{gate.bound:.1e}",
            "least_points": min(sizes),
            "most_points": max(sizes),
        }
        return Proof(row), lambda: said

    def told(said: dict[str, Any], _: Setting, count: bool) -> Iterator[Columns]:
        yield {"params": said}

    return Case(row, check, told)


def clouds_of_every_size(cloud: Cloud, count: int, edges: Sequence[int]) -> list[Cloud]:
    """So many clouds: copies, around every edge of a bucket, and of none, one and two points.

    Args:
        cloud: what they are parts of.
        count: how many there will be; at least those around the edges and one copy.
        edges: capacities of buckets, in voxels.
    """
    voxels = len(cells_of(cloud))
    around = [edge + step for edge in edges for step in (-1, 0, 1) if 2 < edge + step <= voxels]
    few = clouds_of_cells(cloud, [size for size in (*SMALLEST, *around) if size <= voxels])
    left = max(1, count - len(few))
    # those around an edge have a voxel a point: more than the copies that a bucket was made for
    return [*copies(cloud, sizes_of_drive(cloud, left, smallest=0.01)), *few]


def replay_rows(setting: LatencySetting, figure: str) -> Iterator[Row]:
    """Memory over thousands of calls on scans of varying size; no rows without a GPU."""
    if setting.where.type != "cuda":
        return
    for gate, cloud in gates(setting):
        cases = (_replayed(setting, figure, gate, cloud, line) for line in _graphs(setting))
        yield from run(cases, setting)


def _replayed(setting: LatencySetting, figure: str, gate: Gate, cloud: Cloud, line: Line) -> Case:
    scans = [gate.scan(one) for one in copies(cloud, sizes_of_drive(cloud, setting.scans))]
    row = latency_row(setting, cloud.name, gate, line.name, figure, {"replays": setting.replays})

    def check() -> Checked:
        task = checked_task(gate, line, row, scans)
        return Proof(row), lambda: task

    return Case(row, check, partial(memory_over, replays=setting.replays))


def memory_over(task: Task, setting: Setting, count: bool, replays: int) -> Iterator[Columns]:
    """One row: memory once it has settled, and by how much it grew until the last call [bytes].

    ``growth`` is of torch's allocator, ``device_growth`` of all that the device has given out.
    """
    calls, settled = task.calls(), int(SETTLED * replays)
    every = max(1, (replays - settled) // READINGS)
    readings: list[tuple[int, int]] = []
    for number in range(replays):
        calls(number)()
        if number >= settled and (number - settled) % every == 0:
            readings.append(memory_now(setting.where))
    readings.append(memory_now(setting.where))
    (first, first_device), *rest = readings
    said = {
        "settled_after": settled,
        "growth": max(found for found, _ in rest) - first,
        "device_growth": max(found for _, found in rest) - first_device,
        **task.runner.memory(),
        **task.said,
    }
    yield {"memory_mb": round(first / 2**20, 4), "params": said}


def memory_now(device: torch.device) -> tuple[int, int]:
    """Bytes that torch's allocator holds, and that the device has given out to all."""
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    return torch.cuda.memory_reserved(device), total - free
