"""One scan from points to features, as a CUDA graph and eager, and drives of many scans.

Outputs on a part of each scan are held to float64. Eager and graph run the same kernels, so their
outputs are mostly the same bits; where they are not, each may be off by the bound of a network, so
the two may differ by twice that.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from benchmarks import check, engines
from benchmarks.check import CheckFailed
from benchmarks.convolution import products_of, torch_dtype
from benchmarks.engines import Settings
from benchmarks.inputs import Points
from benchmarks.nets import Size, Standard, features_of
from benchmarks.networks import network_row
from benchmarks.rows import Row
from benchmarks.run import Case, Options, run, timed
from benchmarks.workloads import Cloud, clouds, scenes
from pcnn.ops.engine import Engine, resolve
from pcnn.runtime import graph
from pcnn.runtime.buckets import Edges, Exact
from pcnn.runtime.timing import Call, wait_for

MODELS = ("minkunet", "sparse_resnet", "sparse_resnet_large", "resunet")
#: Networks whose name here is not that of `benchmarks.nets`.
NETWORK_OF = {"minkunet": "minkunet_logits"}
#: From points on the device to features there, and from pinned memory of the host to such memory.
DEVICE, HOST = "device", "host"
GRAPH, EAGER = "graph", "eager"
#: Points of a scan that networks are held to float64 on.
FEW = 10_000
#: Scans of a drive, their smallest share of a scan, and calls of each by a pair of graphs.
SCANS, SMALLEST, TURNS = 24, 0.5, 15
#: Largest change of scale of a copy of a scan, and the ways to make it smaller, in turn.
SCALE, WAYS = 0.05, ("thinned", "cut", "thinned and cut")


@dataclass(frozen=True)
class Line:
    """One line of a figure: an engine, as one graph or eager."""

    name: str
    engine: Engine
    is_graph: bool = False


def lines(options: Options) -> list[Line]:
    """``graph`` and ``eager`` by the engine ``auto``, and the papers' engines both ways.

    Engines of the options name lines: ``graph``, ``eager``, ``spira``, ``spira graph``.
    """
    auto, on_gpu = resolve("auto"), options.device.type == "cuda"
    found = [Line(GRAPH, auto, True)] if on_gpu else []
    found.append(Line(EAGER, auto))
    for engine, _ in engines.with_papers(replace(options, engines=["auto"])):
        if isinstance(engine, Engine) and engine.name != "auto":
            found.append(Line(engine.name, engine))
            if on_gpu and engine.name != "torchsparse++":
                found.append(Line(f"{engine.name} {GRAPH}", engine, True))
    return [line for line in found if not options.engines or line.name in options.engines]


class Runner:
    """A network that answers scans, from points to features.

    Args:
        network: in evaluation mode, in the dtype of the features.
        options: its device.
        voxel_size: edge of a voxel [m], of a graph; ``None``: eager.
        exactly: whether every size is a bucket of its own.
    """

    def __init__(
        self, network: Any, options: Options, voxel_size: float | None, exactly: bool = False
    ) -> None:
        self.network, self.device = network, options.device
        self.graph = None
        if voxel_size is not None:
            self.graph = graph(network, voxel_size, edges=Exact() if exactly else Edges())

    @torch.inference_mode()
    def __call__(self, scan: Points) -> Any:
        """The answer to a scan on the device, or of the host's pinned memory."""
        if self.graph is not None:
            (points, *rest), _ = scan.as_points
            answer = self.graph(points, *rest)
            if self.graph.reason is not None:
                raise ValueError(f"no graph: {self.graph.reason}")
            return answer
        if scan.points.device != self.device:
            scan = _moved(scan, lambda tensor: tensor.to(self.device, non_blocking=True))
        return self.network(scan.on(self.network, backward=False))

    @torch.inference_mode()
    def delivered(self, answer: Any) -> Tensor:
        """The host's result: an output at every point, of backbones the last level's rows."""
        found: Tensor = answer[-1].features if isinstance(answer, list) else answer.at_points()
        return found


def _moved(scan: Points, move: Callable[[Tensor], Tensor]) -> Points:
    batch = None if scan.batch is None else move(scan.batch)
    return replace(scan, points=move(scan.points), features=move(scan.features), batch=batch)


class Gate:
    """Networks of one model on one scan, each line's ready to be called once it has passed."""

    def __init__(self, options: Options, model: str, cloud: Cloud) -> None:
        self.options, self.model, self.cloud = options, model, cloud
        self.dtype = torch_dtype(options.dtype)
        self.runner = cache(self._runner)

    @cached_property
    def standard(self) -> Standard:
        """What networks are held against: the points nearest to the middle of the scan."""
        points = self.cloud.points
        away = (points - points.median(0).values).square().sum(1)
        near = points[away.topk(min(len(points), FEW, self.options.check), largest=False).indices]
        size = Size(NETWORK_OF.get(self.model, self.model))
        part = replace(self.cloud, points=near)
        return Standard(self.options, size, Points.of(part, "voxel"))

    def scan(self, cloud: Cloud) -> Points:
        """A cloud on the device, with features in the dtype of the network."""
        return Points.of(cloud.to(self.options.device), "voxel").to(self.dtype)

    def made(self, line: Line, exactly: bool = False) -> Runner:
        """The network of a line, unchecked; a graph with a bucket for every size if asked for."""
        work = self.standard.work(line.engine, "infer", self.standard.cells)
        work.compile_ahead("infer")
        size = self.cloud.voxel_size if line.is_graph else None
        return Runner(work.network, self.options, size, exactly)

    def _runner(self, line: Line) -> Runner:
        """The network of a line, held to float64."""
        made, part = self.made(line), self.standard.cells.to(self.dtype)
        self.standard.check(_Answers(made, part), "infer")  # type: ignore[arg-type]
        return made

    def agrees(self, runner: Runner, scan: Points) -> str:
        """How the outputs of a graph agree with eager on a scan; CheckFailed if they do not."""
        eager = self.runner(Line(EAGER, resolve("auto")))
        found, wanted = (features_of(one(scan)) for one in (runner, eager))
        if all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True)):
            return "bitwise"
        worst = max(map(_difference, found, wanted))
        bound = 2 * check.OUTPUT * max(self._shares())
        if not worst <= bound:  # NaN is above every bound
            raise CheckFailed(f"outputs of graph and eager differ by {worst:.1e} of {bound:.1e}")
        return f"{worst:.1e}"

    def _shares(self) -> Iterator[float]:
        yield check.RELATIVE_RMS[self.options.dtype]
        truth, plain, errors = self.standard.found["infer"]
        for name, exact in truth.items():
            if check.rms(exact):
                own = max(check.rms(plain[name].double() - exact), errors[name])
                yield own / check.rms(exact)

    def row(self, figure: str, line: str, sites: int, **keys: Any) -> Row:
        """A row of a line on the scan; ``n`` is the number of its voxels."""
        row = network_row(
            self.options, figure, self.cloud.name, line, Size(self.model), n=sites, **keys
        )
        return row


@dataclass(frozen=True)
class _Answers:
    """A runner on a part of a scan, as `Standard.check` wants it."""

    runner: Runner
    scan: Points

    def results(self, mode: str) -> check.Tensors:
        found = features_of(self.runner(self.scan))
        return {f"out{number}": tensor for number, tensor in enumerate(found)}


def _difference(found: Tensor, wanted: Tensor) -> float:
    """RMS of a difference over that of what is wanted, 0 of empty tensors."""
    if found.shape != wanted.shape:
        return math.nan
    scale = check.rms(wanted.double())
    return check.rms(found.double() - wanted.double()) / (scale or 1.0)


@dataclass(frozen=True, eq=False)
class Task:
    """A runner that has passed its checks, the scans it will answer, and how a graph agrees."""

    runner: Runner
    scans: Sequence[Points]
    agreement: str | None = None

    @property
    def said(self) -> dict[str, Any]:
        """What the check of a graph found."""
        return {} if self.agreement is None else {"equals_eager": self.agreement}

    def call(self, index: int) -> Call:
        """From the device to the device."""
        scan = self.scans[index % len(self.scans)]
        return lambda: self.runner(scan)

    def from_host(self) -> Callable[[int], Call]:
        """From pinned memory to pinned memory; who times it waits for the device."""
        on_gpu = self.runner.device.type == "cuda"
        move = (lambda t: t.cpu().pin_memory()) if on_gpu else (lambda t: t)
        scans = [_moved(scan, move) for scan in self.scans]
        answers = [self.runner.delivered(self.runner(scan)) for scan in self.scans]
        largest = max(answers, key=lambda answer: answer.nbytes)
        space = torch.empty(largest.nbytes, dtype=torch.uint8, pin_memory=on_gpu)

        def call(index: int) -> Call:
            scan = scans[index % len(scans)]

            def answer() -> Tensor:
                found = self.runner.delivered(self.runner(scan))
                own = space[: found.nbytes].view(found.dtype).view(found.shape)
                return own.copy_(found, non_blocking=True)

            return answer

        return call


def times(call: Callable[[int], Call], options: Options, count: int, budget: float) -> list[float]:
    """Wall time of every call, scan after scan, after as many to warm up as a fifth [ms]."""
    found: list[float] = []
    began, warm = time.perf_counter(), max(3, count // 5)
    for index in range(warm + count):
        one = call(index)
        wait_for(options.device)
        start = time.perf_counter()
        kept = one()
        wait_for(options.device)
        found.append(1e3 * (time.perf_counter() - start))
        del kept
        if time.perf_counter() - began > budget and len(found) >= warm + 3:
            break
    return found[warm:]


def tails(milliseconds: Sequence[float]) -> dict[str, float]:
    """Median and upper percentiles of times, by nearest rank."""
    ordered = sorted(milliseconds)
    ranks = {f"p{p}_ms": ordered[-(-len(ordered) * p // 100) - 1] for p in (90, 95, 99)}
    return {"wall_ms": statistics.median(ordered), "min_ms": ordered[0], **ranks}


def gates(options: Options) -> Iterator[tuple[Gate, Cloud, int]]:
    """A gate a model and scan, the scan on the device, and its number of voxels."""
    found = [scene.cloud() for scene in scenes(options.workloads)] if not options.clouds else []
    found += clouds(options.clouds, options.device)
    with products_of(options.dtype):
        for model in options.models or MODELS:
            for cloud in (one.to(options.device) for one in found):
                yield Gate(options, model, cloud), cloud, voxels_of(cloud)


def voxels_of(cloud: Cloud) -> int:
    """Number of different cells of a cloud."""
    return len(torch.floor(cloud.points.double() / cloud.voxel_size).long().unique(dim=0))


def checked_task(gate: Gate, line: Line, scans: Sequence[Points]) -> Task:
    """A line's runner, held to float64 and, if it is a graph, to eager on every scan."""
    runner = gate.runner(line)
    if not line.is_graph:
        return Task(runner, scans)
    found = sorted({gate.agrees(runner, scan) for scan in scans})
    return Task(runner, scans, found[-1] if found != ["bitwise"] else "bitwise")


def latency_rows(options: Options, figure: str) -> Iterator[Row]:
    """Every model on every scan by all lines, device to device and host to host."""
    for gate, cloud, sites in gates(options):
        yield from run(_cases(options, figure, gate, cloud, sites), options)


def _cases(options: Options, figure: str, gate: Gate, cloud: Cloud, sites: int) -> Iterator[Case]:
    scan = gate.scan(cloud)
    for line in lines(options):
        for mode in options.modes or (DEVICE, HOST):
            row = gate.row(figure, line.name, sites, mode=mode, points=len(cloud.points))

            def checked(line: Line = line) -> Task:
                return checked_task(gate, line, [scan])

            yield Case(row, checked, _on_device if mode == DEVICE else _on_host)


def _on_device(task: Task, options: Options) -> Iterator[tuple[Settings, Settings]]:
    ((_, result),) = timed(lambda: task.call(0), replace(options, runs=1))
    often = max(options.repeats, 20)
    found = tails(times(task.call, options, often, options.budget))
    yield {}, {**result, **found, **task.said}


def _on_host(task: Task, options: Options) -> Iterator[tuple[Settings, Settings]]:
    often = max(options.repeats, 20)
    yield {}, {**tails(times(task.from_host(), options, often, options.budget)), **task.said}


def drive_rows(options: Options, figure: str) -> Iterator[Row]:
    """Scans of varying size one after another, by graph and eager: one row for all of them.

    A graph serves a scan in the bucket that holds it, so some rows are computed for nothing: how
    much that costs is the ratio of its times to those of graphs captured for each scan alone
    (``over_exact``), which answer it in turn.
    """
    for gate, cloud, sites in gates(options):
        scans = [gate.scan(one) for one in copies(cloud, drive_sizes(cloud))]
        cases = []
        for line in lines(options):
            if line.name in (GRAPH, EAGER):
                row = gate.row(figure, line.name, sites, scans=len(scans))

                def checked(line: Line = line, gate: Gate = gate, scans: Any = scans) -> Any:
                    return checked_task(gate, line, scans), gate, line

                cases.append(Case(row, checked, _over_drive))
        yield from run(cases, options)


def _over_drive(
    made: tuple[Task, Gate, Line], options: Options
) -> Iterator[tuple[Settings, Settings]]:
    task, gate, line = made
    count = max(options.repeats, 5 * len(task.scans))
    result: dict[str, Any] = {**task.said}
    if line.is_graph:
        ratios = [_over_exact(task.runner, gate, line, scan, options) for scan in task.scans]
        result |= {"over_exact": statistics.median(ratios), "over_exact_worst": max(ratios)}
    budget = 3 * options.budget
    yield {"mode": DEVICE}, {**tails(times(task.call, options, count, budget)), **result}
    yield {"mode": HOST}, {**tails(times(task.from_host(), options, count, budget)), **result}


def _over_exact(shared: Runner, gate: Gate, line: Line, scan: Points, options: Options) -> float:
    exact = gate.made(line, exactly=True)
    gate.agrees(exact, scan)
    pair = shared, exact
    found = times(lambda index: lambda: pair[index % 2](scan), options, 2 * TURNS, options.budget)
    return statistics.median(found[::2]) / statistics.median(found[1::2])


def drive_sizes(cloud: Cloud) -> list[int]:
    """Points of the scans of a drive, evenly from a share of a scan to all of it, mixed."""
    shares = torch.linspace(SMALLEST, 1.0, SCANS, dtype=torch.float64)
    order = torch.randperm(SCANS, generator=torch.Generator().manual_seed(0))
    return [int(share * len(cloud.points)) for share in shares[order].tolist()]


def copies(cloud: Cloud, points: Sequence[int]) -> list[Cloud]:
    """A copy of a scan for every number of points: turned about z, scaled, thinned and cut.

    They have the density and the neighbourhoods of a scan, and no two of them the same voxels.
    """
    made = []
    for number, count in enumerate(points):
        random = torch.Generator().manual_seed(number)
        own = _copy(cloud.points, count, WAYS[number % len(WAYS)], random)
        made.append(replace(cloud, points=own))
    return made


def _copy(points: Tensor, count: int, way: str, random: torch.Generator) -> Tensor:
    angle, scale, heading = torch.rand(3, generator=random, dtype=torch.float64).tolist()
    kept = torch.arange(len(points), device=points.device)
    if way != "thinned":  # a sector goes: what lies next to a heading in angle comes first
        share = count / max(1, len(points))
        share = share if way == "cut" else share**0.5
        x, y = (points[:, :2].double() - points[:, :2].double().mean(0)).T
        away = (torch.atan2(y, x) - 2 * math.pi * heading).remainder(2 * math.pi)
        kept = away.sort(stable=True).indices[: max(count, int(share * len(points)))]
    chosen = torch.randperm(len(kept), generator=random)[:count].to(points.device)
    c, s = math.cos(2 * math.pi * angle), math.sin(2 * math.pi * angle)
    turn = torch.tensor([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    turn = (turn.T * (1 + SCALE * (2 * scale - 1))).to(points.device)
    return (points[kept[chosen]].double() @ turn).float()


#: Figures by name, each the rows of it by the options.
FIGURES: dict[str, Callable[[Options, str], Iterator[Row]]] = {
    "latency": latency_rows,
    "latency_drive": drive_rows,
}
