"""Native points: layers, memory and networks, and the figures of PointCNN++."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch

from benchmarks import engines
from benchmarks.convolution import Place, Shape, products_of
from benchmarks.engines import Settings
from benchmarks.inputs import Points, tensor_on
from benchmarks.layers import layer_cases
from benchmarks.measured import Repeats, wall_times
from benchmarks.nets import Size, Standard, Work
from benchmarks.networks import both_times, network_row
from benchmarks.rows import Row
from benchmarks.run import Case, Measure, Options, run
from benchmarks.workloads import Cloud, clouds, room
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE
from pcnn.geometry import Geometry
from pcnn.maps import DoubleTraversed, HashTable
from pcnn.ops.engine import Engine, resolve

MB = 2**20
#: The layer of the paper's figures, and the second one that its code was timed on.
PAPER, SECOND = Shape(64, 128, 3), Shape(64, 64, 3)
MODEL = Size("resnet18")
MODES = ("infer", "forward", "backward", "train")
ROOMS = "rooms (simulated)"  # all growing rooms together, in result rows
FEW = 50_000  # points that networks are verified on, at most


@dataclass(frozen=True)
class Line:
    name: str
    geometry: str
    engine: Engine


def lines(options: Options, *wanted: str) -> list[Line]:
    """Lines of these names, of the options' if there are any."""
    auto, device = resolve("auto"), options.device
    table, sorted_ = engines.on(device, HashTable()), engines.on(device, DoubleTraversed())
    found = [
        Line("voxel", "voxel", auto),
        Line("native", "native", auto),
        Line("torchsparse", "voxel", Engine("torchsparse", table, TORCHSPARSE)),
        Line("minuet", "voxel", Engine("minuet", sorted_, MINUET)),
        Line("pointcnnpp", "native", resolve("pointcnnpp")),
    ]
    known = {line.name for line in found}
    chosen = [name for name in options.engines if name in known] or known
    return [line for line in found if line.name in chosen and (not wanted or line.name in wanted)]


def sites_of(geometry: str, cloud: Cloud) -> Geometry:
    return tensor_on(Points(cloud.points, cloud.points, cloud.voxel_size, geometry)).geometry


def given(options: Options, points: int = 100_000) -> Iterator[Cloud]:
    if not options.clouds:
        yield room(0, min(points, round(1000 * max(options.sizes))), options.device)
    yield from clouds(options.clouds, options.device)


def growing(options: Options) -> Iterator[tuple[Settings, Cloud]]:
    """Every room in all sizes under one name, with its number and the points asked for."""
    for size in options.sizes:
        for number in range(options.rooms):
            made = room(number, round(1000 * size), options.device)
            yield {"room": number, "points": round(1000 * size)}, replace(made, name=ROOMS)


def layer_rows(
    shapes: Sequence[Shape],
    kinds: Sequence[str],
    clouds_of: Callable[[Options], Iterable[tuple[Settings, Cloud]]],
) -> Callable[[Options, str], Iterator[Row]]:
    """Check, then time, layers of one kernel on clouds by all lines."""

    def rows(options: Options, figure: str) -> Iterator[Row]:
        chosen = lines(options)
        for keys, cloud in clouds_of(options):
            for geometry in dict.fromkeys(line.geometry for line in chosen):
                place = Place(cloud.name, sites_of(geometry, cloud), PAPER.kernel)
                own = [line for line in chosen if line.geometry == geometry]
                entries = [(replace(line.engine, name=line.name), {}) for line in own]
                more = {**keys, "geometry": geometry}
                for shape in shapes:
                    with products_of(options.dtype):
                        own = options.modes or kinds
                        cases = layer_cases(options, figure, place, shape, own, entries, **more)
                        yield from run(cases, options)

    return rows


class CheckedNetworks:
    """ResNet18, by every line held to float64 on a small room, ready for any cloud."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.cloud = room(0, min(FEW, options.check), options.device)
        self.standard = cache(self._standard)
        self.check = cache(self._check)

    def _standard(self, geometry: str) -> Standard:
        return Standard(self.options, MODEL, Points.of(self.cloud, geometry))

    def _check(self, line: Line, mode: str) -> None:
        standard = self.standard(line.geometry)
        small = standard.work(line.engine, mode, standard.cells)
        small.compile_ahead(mode)
        standard.check(small, mode)

    def work(self, line: Line, mode: str, cloud: Cloud) -> Work:
        self.check(line, mode)
        points = Points.of(cloud, line.geometry)
        return self.standard(line.geometry).work(line.engine, mode, points)

    def case(
        self,
        line: Line,
        mode: str,
        cloud: Cloud,
        figure: str,
        measure: Measure | None = None,
        **keys: Any,
    ) -> Case:
        """A network on a cloud; ``measure`` makes rows of its `Work`."""
        said = {"mode": mode, "n": len(cloud.points), "checked_on": self.cloud.name, **keys}
        row = network_row(self.options, figure, cloud.name, line.name, MODEL, **said)

        def checked() -> Any:
            work = self.work(line, mode, cloud)
            if measure is None:  # others look at memory
                work.compile_ahead(mode)
            return work if measure else work.prepare(mode)

        return Case(row, checked, measure or both_times)


def network_rows(options: Options, figure: str) -> Iterator[Row]:
    """PointCNN++ Fig. 5: ResNet18 on growing rooms by all lines, time and peak memory."""
    with products_of(options.dtype):
        checked = CheckedNetworks(options)
        for keys, cloud in growing(options):
            cases = (
                checked.case(line, mode, cloud, figure, **keys)
                for line in lines(options)
                for mode in options.modes or MODES
            )
            yield from run(cases, options)


def clear() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


#: Points of the first room, the growth to the next, and how close the search for the largest gets.
FIRST, GROWTH, CLOSE = 250_000, 4, 1.1


def largest_rows(options: Options, figure: str) -> Iterator[Row]:
    """PointCNN++ Fig. J: peak memory of growing rooms until one does not fit, then bisection."""
    with products_of(options.dtype):
        checked = CheckedNetworks(options)
        for mode in options.modes or ("infer", "train"):
            for line in lines(options, "native", "voxel", "torchsparse", "pointcnnpp"):
                if not options.is_late:
                    yield from _search(options, figure, checked, line, mode)


def _search(
    options: Options, figure: str, checked: CheckedNetworks, line: Line, mode: str
) -> Iterator[Row]:
    fits, fails, points = 0, 0, min(FIRST, round(1000 * options.largest))
    while points <= 1000 * options.largest and not options.is_late:
        keys = {"points": points} | ({"memory_gb": options.memory} if options.memory else {})
        cloud = room(0, points, options.device)
        case = checked.case(line, mode, cloud, figure, partial(_run_once, mode=mode), **keys)
        (row,) = run([case], options)
        yield row
        if "left_out" in row["result"]:
            return
        if row["result"]["fits"]:
            fits = points
        else:
            fails = points
        if not fails:
            points *= GROWTH
        elif fits and fails > CLOSE * fits:
            points = int((fits * fails) ** 0.5)
        else:
            return


def _run_once(work: Work, options: Options, mode: str) -> Iterator[tuple[Settings, Settings]]:
    """One row: time of the second of two runs, and the peak of both."""
    clear()
    on_gpu = options.device.type == "cuda"
    device = torch.device("cuda", options.device.index or 0)
    limited = on_gpu and options.memory is not None
    try:
        if limited:
            share = options.memory * 1e9 / torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, share), device)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(device)
            # the network's copy lies there before the cloud is planned
            held = torch.cuda.memory_allocated(device)
        call = work.prepare(mode)()
        for _ in range(2):
            (spent,) = wall_times(call, options.device, Repeats(1, 0, 0.0))
    except torch.OutOfMemoryError:
        yield {}, {"fits": 0}
        return
    except RuntimeError as error:  # a limit of its own, as a table that would be too large
        yield {}, {"fits": 0, "stopped_by": f"{type(error).__name__}: {error}"}
        return
    finally:
        if limited:
            torch.cuda.set_per_process_memory_fraction(1.0, device)
        clear()
    peak = (torch.cuda.max_memory_allocated(options.device) - held) / MB if on_gpu else None
    yield {}, {"fits": 1, "wall_ms": spent, "memory_mb": peak}


FIGURES: dict[str, Callable[[Options, str], Iterator[Row]]] = {
    "pointcnnpp_fig3": layer_rows([PAPER], ("map+layer", "map+train"), growing),
    "pointcnnpp_fig4": layer_rows([PAPER], ("layer", "backward"), growing),
    "pointcnnpp_fig5": network_rows,
    "pointcnnpp_figJ": largest_rows,
    "points_layers": layer_rows(
        [PAPER, SECOND],
        ("layer", "backward", "train", "map+layer", "map+train"),
        lambda options: (({}, cloud) for cloud in given(options)),
    ),
}
