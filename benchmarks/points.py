"""Native points: layers, triplets, memory and networks, and the figures of PointCNN++."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch

from benchmarks import check, engines
from benchmarks.convolution import (
    Layer,
    Operands,
    Place,
    Shape,
    bare,
    new_map,
    products_of,
)
from benchmarks.engines import Settings
from benchmarks.inputs import Points, tensor_on
from benchmarks.layers import layer_cases
from benchmarks.nets import Size, Standard, Work
from benchmarks.networks import both_times, network_row
from benchmarks.rows import Row
from benchmarks.run import Case, Measure, Options, Prepare, checking, run
from benchmarks.workloads import Cloud, clouds, room
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE
from pcnn.geometry import Geometry, Kernel, KernelMap
from pcnn.maps import DoubleTraversed, HashTable
from pcnn.ops.engine import Engine, resolve
from pcnn.runtime.timing import Call, Repeats, wall_times

MB = 2**20
#: The layer of the paper's figures, and the second one that its code was timed on.
PAPER, SECOND = Shape(64, 128, 3), Shape(64, 64, 3)
MODEL = Size("resnet18")
MODES = ("infer", "forward", "backward", "train")
#: All growing rooms together, in result rows.
ROOMS = "rooms (simulated)"
#: Triplets by slot; with them what a forward pass reads; with that what backward reads too.
PRODUCTS = ("pairs", "ready", "train")
#: Points that networks are verified on, at most.
FEW = 50_000


@dataclass(frozen=True)
class Line:
    """One line of a figure: a geometry of a cloud (see `Points`), and an engine."""

    name: str
    geometry: str
    engine: Engine


def lines(options: Options, *wanted: str) -> list[Line]:
    """Lines of these names, of the options' if there are any.

    ``voxel``, ``degraded`` and ``native`` are our engine ``auto``, ``pointcnnpp`` the kernels as
    the paper prints them; ``torchsparse`` and ``minuet`` gather, multiply and scatter.
    """
    auto, device = resolve("auto"), options.device
    table, sorted_ = engines.on(device, HashTable()), engines.on(device, DoubleTraversed())
    found = [
        Line("voxel", "voxel", auto),
        Line("degraded", "degraded", auto),
        Line("native", "native", auto),
        Line("torchsparse", "voxel", Engine("torchsparse", table, TORCHSPARSE)),
        Line("minuet", "voxel", Engine("minuet", sorted_, MINUET)),
        Line("pointcnnpp", "native", resolve("pointcnnpp")),
    ]
    known = {line.name for line in found}
    chosen = [name for name in options.engines if name in known] or known
    return [line for line in found if line.name in chosen and (not wanted or line.name in wanted)]


def sites_of(geometry: str, cloud: Cloud) -> Geometry:
    """The geometry of a cloud alone."""
    return tensor_on(Points(cloud.points, cloud.points, cloud.voxel_size, geometry)).geometry


def given(options: Options, points: int = 100_000) -> Iterator[Cloud]:
    """The options' clouds; without any, a room of so many points."""
    if not options.clouds:
        yield room(0, min(points, round(1000 * max(options.sizes))), options.device)
    yield from clouds(options.clouds, options.device)


def growing(options: Options) -> Iterator[tuple[Settings, Cloud]]:
    """Every room in all sizes under one name, with its number and the points asked for."""
    for size in options.sizes:
        for number in range(options.rooms):
            with checking(options):
                made = room(number, round(1000 * size), options.device)
            yield {"room": number, "points": round(1000 * size)}, replace(made, name=ROOMS)


def layer_rows(
    options: Options,
    figure: str,
    named: Iterable[tuple[Settings, Cloud]],
    chosen: Sequence[Line],
    shapes: Sequence[Shape],
    kinds: Sequence[str],
) -> Iterator[Row]:
    """Check, then time, layers of one kernel on clouds by all lines."""
    for keys, cloud in named:
        for geometry in dict.fromkeys(line.geometry for line in chosen):
            with checking(options):
                place = Place(cloud.name, sites_of(geometry, cloud), PAPER.kernel)
            own = [line for line in chosen if line.geometry == geometry]
            entries = [(replace(line.engine, name=line.name), {}) for line in own]
            for shape in shapes:
                more = {**keys, "geometry": geometry}
                with products_of(options.dtype):
                    cases = layer_cases(options, figure, place, shape, kinds, entries, **more)
                    yield from run(cases, options)


def over_rooms(*kinds: str) -> Callable[[Options, str], Iterator[Row]]:
    """Figures 3 and 4 of PointCNN++: the paper's layer on growing rooms."""
    return lambda options, figure: layer_rows(
        options, figure, growing(options), lines(options), [PAPER], kinds
    )


def on_clouds(
    shapes: Sequence[Shape], kinds: Sequence[str], *wanted: str
) -> Callable[[Options, str], Iterator[Row]]:
    """Layers on the options' clouds."""

    def rows(options: Options, figure: str) -> Iterator[Row]:
        named = (({}, cloud) for cloud in given(options))
        own = options.modes or kinds
        return layer_rows(options, figure, named, lines(options, *wanted), shapes, own)

    return rows


def triplet_rows(options: Options, figure: str) -> Iterator[Row]:
    """The maps of native points and of voxels, product by product, and the sorting of points."""
    chosen = lines(options, "voxel", "degraded", "native", "pointcnnpp")
    for cloud in given(options):
        for size in (3, 5):
            for geometry in dict.fromkeys(line.geometry for line in chosen):
                place = Place(cloud.name, sites_of(geometry, cloud), Kernel.of(size))
                own = [line for line in chosen if line.geometry == geometry]
                cases = (_map_case(options, place, o, p, figure) for o in own for p in PRODUCTS)
                yield from run(cases, options)


def _map_case(options: Options, place: Place, line: Line, product: str, figure: str) -> Case:
    """A product of a line's map, from the sorted keys of the sites alone."""
    what = "map" if line.geometry == "voxel" else "radius"
    row = place.row(what, line.name, figure, product=product)
    engine, device = line.engine, options.device

    def prepared() -> Call:
        sites = bare(place.grid)

        def build() -> object:
            built = new_map(engine, sites, place.kernel)
            _deliver(built, engine, product, device)
            return built

        return build

    def checked() -> Prepare:
        """The triplets, and products over all layouts in float64."""
        check.check_triplets(new_map(engine, place.grid, place.kernel), place.pairs)
        if product != "pairs":
            operands = Operands.at(place, Shape(8, 8, place.kernel.size[0]), options.dtype)
            truth = operands.truth(place, backward=True)
            layer = Layer(engine, place, operands)
            results = layer.results("train" if product == "train" else "layer")
            check.check_values(results, truth, options.dtype, place.longest)
        return prepared

    return Case(row, checked)


def _deliver(built: KernelMap, engine: Engine, product: str, device: torch.device) -> None:
    flow = engine.choose(built, device)
    if product == "pairs":
        built.layout("pairs")
        return
    built.layouts(flow.needs)
    if product == "train":
        built.layouts(flow.needs_weight_grad)
        if not built.symmetric:
            built.transpose().layouts(flow.needs)


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

    def forget(self) -> None:
        """Give back what further checks would be held against."""
        for geometry in ("voxel", "degraded", "native"):
            self.standard(geometry).forget()

    def work(self, line: Line, mode: str, cloud: Cloud) -> Work:
        """A network on a cloud; CheckFailed if it is wrong on the small room."""
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
    """Give back memory that is not in use."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


#: Points of the first room, the growth to the next, and how close the search for the largest gets.
FIRST, GROWTH, CLOSE = 250_000, 4, 1.1


def largest_rows(options: Options, figure: str) -> Iterator[Row]:
    """PointCNN++ Fig. J: peak memory of growing rooms until one does not fit, then bisection.

    A run is inference, or a training step, from points with ResNet18. Peaks are those of torch's
    allocator above what lay there before the cloud. ``fits`` is 0 where memory was not enough;
    ``stopped_by`` names any other error. On a CPU nothing ends the search but its largest room.
    """
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
        with checking(options):
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
    try:
        with at_most(options):
            if on_gpu:
                torch.cuda.reset_peak_memory_stats(options.device)
                # the network's copy lies there before the cloud is planned
                held = torch.cuda.memory_allocated(options.device)
            call = work.prepare(mode)()
            spent = 0.0
            for _ in range(2):
                (spent,) = wall_times(call, options.device, Repeats(1, 0, 0.0))
    except torch.OutOfMemoryError:
        yield {}, {"fits": 0}
        return
    except RuntimeError as error:  # a limit of its own, as a table that would be too large
        yield {}, {"fits": 0, "stopped_by": f"{type(error).__name__}: {error}"}
        return
    finally:
        clear()
    peak = (torch.cuda.max_memory_allocated(options.device) - held) / MB if on_gpu else None
    yield {}, {"fits": 1, "wall_ms": spent, "memory_mb": peak}


@contextmanager
def at_most(options: Options) -> Iterator[None]:
    """Let torch's allocator take no more than the options' share of the device."""
    if options.memory is None or options.device.type != "cuda":
        yield
        return
    device = torch.device("cuda", options.device.index or 0)
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, options.memory * 1e9 / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


#: Figures by name, each the rows of it by the options.
FIGURES: dict[str, Callable[[Options, str], Iterator[Row]]] = {
    "pointcnnpp_fig3": over_rooms("map+layer", "map+train"),
    "pointcnnpp_fig4": over_rooms("layer", "backward"),
    "pointcnnpp_fig5": network_rows,
    "pointcnnpp_figJ": largest_rows,
    "points_layers": on_clouds(
        [PAPER, SECOND], ("layer", "backward", "train", "map+layer", "map+train")
    ),
    "points_triplets": triplet_rows,
}
