"""One scan from points to features, as a CUDA graph and eager, by every engine.

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
from pcnn.runtime.timing import Call, wait_for

MODELS = ("minkunet", "sparse_resnet", "sparse_resnet_large", "resunet")
#: Networks whose name here is not that of `benchmarks.nets`.
NETWORK_OF = {"minkunet": "minkunet_logits"}
#: From points on the device to features there, and from pinned memory of the host to such memory.
DEVICE, HOST = "device", "host"
GRAPH, EAGER = "graph", "eager"
#: Points of a scan that networks are held to float64 on.
FEW = 10_000


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
    """A network that answers scans, from points to features; as a graph if given a voxel size."""

    def __init__(self, network: Any, options: Options, voxel_size: float | None) -> None:
        self.network, self.device = network, options.device
        self.graph = None if voxel_size is None else graph(network, voxel_size)

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
    def delivered(self, scan: Points) -> Tensor:
        """The host's result: an output at every point, of backbones the last level's rows."""
        answer = self(scan)
        found: Tensor = answer[-1].features if isinstance(answer, list) else answer.at_points()
        return found

    def results(self, scan: Points) -> check.Tensors:
        """Outputs by name."""
        return {f"out{n}": tensor for n, tensor in enumerate(features_of(self(scan)))}


def _moved(scan: Points, move: Callable[[Tensor], Tensor]) -> Points:
    return replace(scan, points=move(scan.points), features=move(scan.features))


class Gate:
    """Networks of one model on one scan, each line's ready to be called once it has passed."""

    def __init__(self, options: Options, model: str, cloud: Cloud) -> None:
        self.options, self.model, self.cloud = options, model, cloud
        self.dtype = torch_dtype(options.dtype)
        self.scan = Points.of(cloud, "voxel").to(self.dtype)
        self.runner = cache(self._runner)

    @cached_property
    def standard(self) -> Standard:
        """What networks are held against: the points nearest to the middle of the scan."""
        points = self.cloud.points
        away = (points - points.median(0).values).square().sum(1)
        near = points[away.topk(min(len(points), FEW, self.options.check), largest=False).indices]
        size = Size(NETWORK_OF.get(self.model, self.model))
        return Standard(self.options, size, Points.of(replace(self.cloud, points=near), "voxel"))

    def _runner(self, line: Line) -> Runner:
        """The network of a line, held to float64."""
        work = self.standard.work(line.engine, "infer", self.standard.cells)
        work.compile_ahead("infer")
        made = Runner(work.network, self.options, self.cloud.voxel_size if line.is_graph else None)
        self.standard.check_results(made.results(self.standard.cells.to(self.dtype)), "infer")
        return made

    def agreement(self, runner: Runner) -> str:
        """How the outputs of a graph agree with eager on the scan; CheckFailed if they do not."""
        eager = self.runner(Line(EAGER, resolve("auto")))
        found, wanted = (list(one.results(self.scan).values()) for one in (runner, eager))
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


def _difference(found: Tensor, wanted: Tensor) -> float:
    """RMS of a difference over that of what is wanted, 0 of empty tensors."""
    if found.shape != wanted.shape:
        return math.nan
    scale = check.rms(wanted.double())
    return check.rms(found.double() - wanted.double()) / (scale or 1.0)


def times(call: Call, options: Options) -> dict[str, float]:
    """Median and upper percentiles of wall times, by nearest rank [ms]."""
    found: list[float] = []
    began, count = time.perf_counter(), max(options.repeats, 20)
    for _ in range(count + 5):
        wait_for(options.device)
        start = time.perf_counter()
        kept = call()
        wait_for(options.device)
        found.append(1e3 * (time.perf_counter() - start))
        del kept
        if time.perf_counter() - began > options.budget and len(found) > 8:
            break
    ordered = sorted(found[5:])
    ranks = {f"p{p}_ms": ordered[-(-len(ordered) * p // 100) - 1] for p in (90, 95, 99)}
    return {"wall_ms": statistics.median(ordered), "min_ms": ordered[0], **ranks}


#: A runner that has passed its checks, the scan, and what the check of a graph found.
Task = tuple[Runner, Points, Settings]


def _on_device(task: Task, options: Options) -> Iterator[tuple[Settings, Settings]]:
    runner, scan, said = task
    ((_, result),) = timed(lambda: lambda: runner(scan), options)
    yield {}, {**result, **times(lambda: runner(scan), options), **said}


def _on_host(task: Task, options: Options) -> Iterator[tuple[Settings, Settings]]:
    runner, scan, said = task
    on_gpu = options.device.type == "cuda"
    here = _moved(scan, lambda t: t.cpu().pin_memory()) if on_gpu else scan
    answer = runner.delivered(scan)
    space = torch.empty(answer.shape, dtype=answer.dtype, pin_memory=on_gpu)
    yield {}, {**times(lambda: _taken(runner, here, space), options), **said}


def _taken(runner: Runner, scan: Points, space: Tensor) -> Tensor:
    found = runner.delivered(scan)
    return space[: len(found)].copy_(found[: len(space)], non_blocking=True)


def latency_rows(options: Options, figure: str) -> Iterator[Row]:
    """Every model on every scan by all lines, device to device and host to host."""
    found = [scene.cloud() for scene in scenes(options.workloads)] if not options.clouds else []
    found += clouds(options.clouds, options.device)
    with products_of(options.dtype):
        for model in options.models or MODELS:
            for cloud in (one.to(options.device) for one in found):
                yield from run(_cases(options, figure, model, cloud), options)


def _cases(options: Options, figure: str, model: str, cloud: Cloud) -> Iterator[Case]:
    gate = Gate(options, model, cloud)
    voxels = len(torch.floor(cloud.points.double() / cloud.voxel_size).long().unique(dim=0))
    sizes = {"n": voxels, "points": len(cloud.points)}
    modes: Sequence[str] = options.modes or (DEVICE, HOST)
    for line in lines(options):
        for mode in modes:
            size = Size(model)
            row = network_row(options, figure, cloud.name, line.name, size, mode=mode, **sizes)

            def checked(line: Line = line) -> Task:
                runner = gate.runner(line)
                said = {"equals_eager": gate.agreement(runner)} if line.is_graph else {}
                return runner, gate.scan, said

            yield Case(row, checked, _on_device if mode == DEVICE else _on_host)


#: Figures by name, each the rows of it by the options.
FIGURES: dict[str, Callable[[Options, str], Iterator[Row]]] = {"latency": latency_rows}
