"""One scan from points to features, as a CUDA graph and eager, and eager by every engine.

Outputs on a part of each scan are held to float64. Eager and graph run the same kernels, so their
outputs are mostly the same bits; where they are not, each may be off by the bound of a network, so
the two may differ by twice that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import torch

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

MODELS = ("minkunet", "sparse_resnet", "sparse_resnet_large", "resunet")
#: Networks whose name here is not that of `benchmarks.nets`.
NETWORK_OF = {"minkunet": "minkunet_logits"}
FEW = 10_000  # points of a scan that networks are held to float64 on


@dataclass(frozen=True)
class Line:
    name: str
    engine: Engine
    is_graph: bool = False


def lines(options: Options) -> list[Line]:
    """``graph`` and ``eager`` by the engine ``auto``, and the papers' engines eagerly."""
    auto, on_gpu = resolve("auto"), options.device.type == "cuda"
    found = [Line("graph", auto, True)] if on_gpu else []
    found.append(Line("eager", auto))
    for engine, _ in engines.with_papers(replace(options, engines=["auto"])):
        if isinstance(engine, Engine) and engine.name != "auto":
            found.append(Line(engine.name, engine))
    return [line for line in found if not options.engines or line.name in options.engines]


class Runner:
    """A network that answers scans, from points to features; as a graph if given a voxel size."""

    def __init__(self, network: Any, voxel_size: float | None) -> None:
        self.network = network
        network.graphs = False  # eager is eager here
        self.graph = None if voxel_size is None else graph(network, voxel_size)

    @torch.inference_mode()
    def __call__(self, scan: Points) -> Any:
        if self.graph is not None:
            (points, *rest), _ = scan.as_points
            answer = self.graph(points, *rest)
            if self.graph.reason is not None:
                raise ValueError(f"no graph: {self.graph.reason}")
            return answer
        return self.network(scan.on(self.network, backward=False))

    def results(self, scan: Points) -> check.Tensors:
        return {f"out{n}": tensor for n, tensor in enumerate(features_of(self(scan)))}


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
        work = self.standard.work(line.engine, "infer", self.standard.cells)
        work.compile_ahead("infer")
        made = Runner(work.network, self.cloud.voxel_size if line.is_graph else None)
        self.standard.check_results(made.results(self.standard.cells.to(self.dtype)), "infer")
        return made

    def agreement(self, runner: Runner) -> str:
        """How the outputs of a graph agree with eager on the scan; CheckFailed if they do not."""
        eager = self.runner(Line("eager", resolve("auto")))
        found, wanted = runner.results(self.scan), eager.results(self.scan)
        if all(torch.equal(found[name], wanted[name]) for name in wanted):
            return "bitwise"
        truth, plain, errors = self.standard.found["infer"]
        differences, share = [], check.RELATIVE_RMS[self.options.dtype]
        for name, exact in truth.items():
            own, one = wanted[name].double(), found[name]
            off = check.rms(one.double() - own) if one.shape == own.shape else math.nan
            differences.append(off / (check.rms(own) or 1.0))
            explained = max(check.rms(plain[name].double() - exact), errors[name])
            share = max(share, explained / (check.rms(exact) or 1.0))
        bound, worst = 2 * check.OUTPUT * share, max(differences)
        if not all(one <= bound for one in differences):  # NaN is above every bound
            raise CheckFailed(f"outputs of graph and eager differ by {worst:.1e} of {bound:.1e}")
        return f"{worst:.1e}"


#: A runner that has passed its checks, the scan, and what the check of a graph found.
Task = tuple[Runner, Points, Settings]


def _on_device(task: Task, options: Options) -> Iterator[tuple[Settings, Settings]]:
    runner, scan, said = task
    for keys, result in timed(lambda: lambda: runner(scan), options):
        yield keys, {**result, **said}


def latency_rows(options: Options, figure: str) -> Iterator[Row]:
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
    for line in lines(options):
        size = Size(model)
        row = network_row(options, figure, cloud.name, line.name, size, mode="device", **sizes)

        def checked(line: Line = line) -> Task:
            runner = gate.runner(line)
            said = {"equals_eager": gate.agreement(runner)} if line.is_graph else {}
            return runner, gate.scan, said

        yield Case(row, checked, _on_device)


FIGURES: dict[str, Callable[[Options, str], Iterator[Row]]] = {"latency": latency_rows}
