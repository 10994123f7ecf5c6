"""Single scans: device to device, host to host, and many clouds in a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pcnn.bench.clouds import Cloud
from pcnn.bench.harness import Calls, Repeats, back_to_back_ms, measure, rounded, wall_time
from pcnn.bench.latency.gate import Agreement, Gate
from pcnn.bench.latency.runners import EAGER, GRAPH, Line, Runner
from pcnn.bench.latency.scans import cells_of, copies
from pcnn.bench.latency.setting import LatencySetting
from pcnn.bench.latency.stages import Layer, anatomy, by_stage, floors_of
from pcnn.bench.layers.layer import products_of
from pcnn.bench.native.network import Points
from pcnn.bench.networks.cases import network_row
from pcnn.bench.place import Params
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, Columns, Measure, middle_timeline, run
from pcnn.bench.setting import Setting
from pcnn.bench.trace import Call
from pcnn.bench.verify import Proof

#: From points on the device to features on the device, and from pinned memory of the host to there.
DEVICE, HOST = "device", "host"


@dataclass(frozen=True, eq=False)
class Task:
    """A runner that has passed its checks, and what it will answer.

    Args:
        runner: the network.
        scans: inputs, on the device.
        agreement: of a graph with eager on them.
        floors: lower bound of every stage of the first scan's time on the device [ms].
        layers: convolutions of the network on the first scan.
    """

    runner: Runner
    scans: Sequence[Points]
    agreement: Agreement | None = None
    floors: Mapping[str, float] | None = None
    layers: Sequence[Layer] = ()

    def calls(self) -> Calls:
        """Calls from the device to the device, scan after scan."""

        def prepared(index: int) -> Call:
            scan = self.scans[index % len(self.scans)]
            return lambda: self.runner(scan)

        return prepared

    def host_calls(self) -> Calls:
        """Calls from pinned memory to pinned memory; who times them waits for the device."""
        scans = [_pinned(scan) for scan in self.scans]
        space = HostSpace()
        for scan in self.scans:  # so that no call allocates
            space.take(self.runner.delivered(self.runner(scan)))

        def prepared(index: int) -> Call:
            scan = scans[index % len(scans)]
            return lambda: space.take(self.runner.delivered(self.runner(scan)))

        return prepared

    @property
    def floor_ms(self) -> float | None:
        """Lower bounds of all stages together [ms]."""
        return None if self.floors is None else round(sum(self.floors.values()), 6)

    @property
    def said(self) -> dict[str, Any]:
        """Settings that the checks found."""
        return {} if self.agreement is None else {"equals_eager": self.agreement.words}


class HostSpace:
    """Pinned memory that outputs are copied to; it grows to the largest."""

    def __init__(self) -> None:
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def take(self, output: Tensor) -> Tensor:
        """Copy an output without waiting."""
        if self._bytes.numel() < output.nbytes:
            self._bytes = torch.empty(output.nbytes, dtype=torch.uint8, pin_memory=output.is_cuda)
        space = self._bytes[: output.nbytes].view(output.dtype).view(output.shape)
        return space.copy_(output, non_blocking=True)


def _pinned(scan: Points) -> Points:
    if not scan.points.is_cuda:
        return scan
    points, features = (tensor.cpu().pin_memory() for tensor in (scan.points, scan.features))
    batch = None if scan.batch is None else scan.batch.cpu().pin_memory()
    return replace(scan, points=points, features=features, batch=batch)


def device_to_device(task: Task, setting: Setting, count: bool) -> Iterator[Columns]:
    """One row: between events on the device, and all that the harness tells of a call."""
    often = Repeats(setting.repeats, 5, setting.budget)
    found = measure(task.calls(), setting.where, often, count=count, tails=True)
    yield {**found, "floor_ms": task.floor_ms, "params": task.said}


def host_to_host(task: Task, setting: Setting, count: bool) -> Iterator[Columns]:
    """One row: the clock's, until the output lies in the memory of the host."""
    often = Repeats(setting.repeats, 5, setting.budget)
    timing = wall_time(task.host_calls(), setting.where, often, on_host=True)
    yield {**timing.columns(tails=True), "cache": "warm", "params": task.said}


#: How a mode is measured.
MEASURES: dict[str, Measure] = {DEVICE: device_to_device, HOST: host_to_host}


def latency_row(
    setting: LatencySetting, workload: str, gate: Gate, line: str, figure: str, params: Params
) -> Row:
    """A row of a network, without times."""
    said = {**params, "geometry": setting.geometry} if setting.is_native else params
    return network_row(setting, workload, line, gate.model, figure, said)


def row_of(
    setting: LatencySetting, cloud: Cloud, gate: Gate, line: str, figure: str, params: Params
) -> Row:
    """A row of a network on a cloud, without times; ``n`` is the number of its finest sites."""
    said = {**params, "points": len(cloud.points)}
    row = latency_row(setting, cloud.name, gate, line, figure, said)
    return replace(row, n=sites_of(cloud, setting))


def sites_of(cloud: Cloud, setting: LatencySetting) -> int:
    """Number of finest sites of a cloud."""
    return len(cloud.points) if setting.is_native else len(cells_of(cloud.to(setting.where)))


def checked_task(gate: Gate, line: Line, row: Row, scans: Sequence[Points]) -> Task:
    """A line's runner for some scans, held to float64 and, if it is a graph, to eager on each.

    Raises:
        CheckFailed: it is wrong.
    """
    runner = gate.runner(line, row)
    if not line.is_graph:
        return Task(runner, scans)
    found = [gate.agreement(row, runner, scan) for scan in scans]
    worst = Agreement(max(one.error for one in found), all(one.bitwise for one in found))
    return Task(runner, scans, worst)


def latency_rows(setting: LatencySetting, figure: str) -> Iterator[Row]:
    """Every model on every fixed scan, by all lines, device to device and host to host."""
    for gate, cloud in gates(setting):
        yield from run(_cases(setting, figure, gate, cloud), setting)


def gates(setting: LatencySetting) -> Iterator[tuple[Gate, Cloud]]:
    """A gate a model and scan, and the scan on the device."""
    clouds = [cloud.to(setting.where) for cloud in setting.clouds]
    with products_of(setting.dtype_name):
        for model in setting.models:
            for cloud in clouds:
                yield Gate(setting, model, cloud), cloud


def _cases(setting: LatencySetting, figure: str, gate: Gate, cloud: Cloud) -> Iterator[Case]:
    scan = gate.scan(cloud)
    for line in setting.lines:
        for mode, measured in MEASURES.items():
            row = row_of(setting, cloud, gate, line.name, figure, {"mode": mode})

            def check(row: Row = row, line: Line = line, mode: str = mode) -> Checked:
                task = checked_task(gate, line, row, [scan])
                if mode == DEVICE:
                    task = replace(task, floors=floors_of(anatomy(gate.eager.network, scan), gate))
                return Proof(row), lambda: task

            yield Case(row, check, measured)


def throughput_rows(setting: LatencySetting, figure: str) -> Iterator[Row]:
    """Clouds a second in batches, call behind call; the clouds are copies of the scan's size."""
    for gate, cloud in gates(setting):
        yield from run(_batches(setting, figure, gate, cloud), setting)


def _batches(setting: LatencySetting, figure: str, gate: Gate, cloud: Cloud) -> Iterator[Case]:
    most = max(setting.batches)
    clouds = [gate.scan(one) for one in copies(cloud, [len(cloud.points)] * most)]
    for line in setting.lines:
        for size in setting.batches:
            row = row_of(setting, cloud, gate, line.name, figure, {"B": size})
            scans = [Points.batched(clouds[:size])] if size > 1 else clouds[:1]

            def check(row: Row = row, line: Line = line, scans: list[Points] = scans) -> Checked:
                task = checked_task(gate, line, row, scans)
                return Proof(row), lambda: task

            yield Case(row, check, back_to_back)


def back_to_back(task: Task, setting: Setting, count: bool) -> Iterator[Columns]:
    """One row: time of a call among many, and clouds in a second."""
    often = Repeats(setting.repeats, 3, setting.budget)
    taken = back_to_back_ms(task.calls(), setting.where, often)
    rate = 1e3 * task.scans[0].batch_size / taken
    said = {**task.said, "clouds_per_second": round(rate, 1)}
    yield {**rounded(wall_ms=taken), "params": said}


def stage_rows(setting: LatencySetting, figure: str) -> Iterator[Row]:
    """Every stage of a scan, by graph and eager, beside its floor."""
    for gate, cloud in gates(setting):
        yield from run(_stages(setting, figure, gate, cloud), setting)


def _stages(setting: LatencySetting, figure: str, gate: Gate, cloud: Cloud) -> Iterator[Case]:
    scan = gate.scan(cloud)
    for line in setting.lines:
        if line.name in (GRAPH, EAGER):
            row = replace(row_of(setting, cloud, gate, line.name, figure, {}), what="stage")

            def check(row: Row = row, line: Line = line) -> Checked:
                task = checked_task(gate, line, row, [scan])
                found = anatomy(gate.eager.network, scan)
                task = replace(task, floors=floors_of(found, gate), layers=found.mapped)
                return Proof(row), lambda: task

            yield Case(row, check, by_stages)


def by_stages(task: Task, setting: Setting, count: bool) -> Iterator[Columns]:
    """A row a stage, read off a trace, and the whole call's."""
    calls, floors = task.calls(), task.floors or {}
    often = Repeats(setting.repeats, 5, setting.budget)
    whole = wall_time(calls, setting.where, often).columns(tails=True)
    yield {**whole, "floor_ms": task.floor_ms, "params": {"stage": "whole", **task.said}}
    spent = by_stage(middle_timeline(calls, setting.where), task.layers)
    for stage, milliseconds in spent.items():
        floor = floors.get(stage)
        columns = rounded(gpu_busy_ms=milliseconds)
        yield {
            **columns,
            "floor_ms": None if floor is None else round(floor, 6),
            "params": {"stage": stage},
        }
