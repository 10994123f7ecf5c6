"""Times of whole networks in inference and training, and figures about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from benchmarks import check, engines
from benchmarks.convolution import products_of, torch_dtype
from benchmarks.engines import Entry, Settings
from benchmarks.inputs import Cells
from benchmarks.layers import parts_of_call
from benchmarks.measured import trace
from benchmarks.nets import Size, Standard, Work, make_network
from benchmarks.peers.base import Peer
from benchmarks.rows import Row
from benchmarks.run import Case, Measure, Options, Prepare, middle_trace, run, timed
from benchmarks.workloads import Scene, aggregated, scenes
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE, GatherScatter
from pcnn.geometry import KernelMap
from pcnn.kernels.product_tiles import tiles_of
from pcnn.maps import HashTable
from pcnn.ops.convolution import convolution
from pcnn.ops.engine import Engine, resolve
from pcnn.runtime.observed import ObservedCall, run_observed
from pcnn.runtime.timing import device_ms

Found = TypeVar("Found")


class LayerCall(NamedTuple):
    """The kernel map of a layer, from the side on which it reads it, and its channels."""

    kernel_map: KernelMap
    c_in: int
    c_out: int


Figure = Callable[[Options, str], Iterator[Row]]

MODELS = ("sparse_resnet", "sparse_resnet_large", "minkunet")  # networks of the papers' evaluations
MODES = ("infer", "graph", "call", "forward", "train", "step", "loop")
#: Networks of large kernels are checked on few voxels: the reference keeps all their products.
FEW = 20_000


def network_rows(
    options: Options,
    figure: str,
    sizes: Sequence[Size] = (),
    modes: Sequence[str] = (),
    entries: Sequence[Entry] = (),
    measure: Measure | None = None,
    chosen: Sequence[Scene] = (),
) -> Iterator[Row]:
    """Check, then time, every network on every scene; what is not given is the options'."""
    usual = [Size(name) for name in options.models or MODELS]
    for scene in chosen or scenes(options.workloads, options.sites):
        for size in sizes or usual:
            with products_of(options.dtype):
                cases = _cases(
                    options,
                    figure,
                    scene,
                    size,
                    modes or options.modes or MODES,
                    entries or engines.compared(options),
                    measure,
                )
                yield from run(cases, options)


def _cases(
    options: Options,
    figure: str,
    scene: Scene,
    size: Size,
    modes: Sequence[str],
    entries: Sequence[Entry],
    measure: Measure | None,
) -> Iterator[Case]:
    cells, few = cells_of(options, scene, size)
    standard = cache(lambda: Standard(options, size, few))
    for engine, said in entries:
        for mode in modes:
            if mode in ("graph", "call") and (
                isinstance(engine, Peer) or options.device.type != "cuda"
            ):
                continue
            row = network_row(options, figure, scene.name, engine.name, size, mode=mode, **said)
            row["n"] = cells.sites
            if cells.downsampling != "floor":
                row["sites"] = cells.downsampling
            if few is not cells:
                row["checked_on"] = f"{few.sites} voxels"

            def checked(engine: Any = engine, mode: str = mode) -> Any:
                work = standard().work(engine, mode, few)
                work.compile_ahead(mode)
                standard().check(work, mode)
                if few is not cells:
                    work = work.elsewhere(cells)
                    work.compile_ahead(mode)  # sizes decide how products are cut
                return work if measure else work.prepare(mode)

            yield Case(row, checked, measure or both_times)


def network_row(
    options: Options, figure: str, workload: str, engine: str, size: Size, **keys: Any
) -> Row:
    return {
        "figure": figure,
        "what": "network",
        "workload": workload,
        "engine": engine,
        "model": size.model,
        "dtype": options.dtype,
        **size.keys,
        **({"width": options.width * size.width} if options.width != 1 else {}),
        **keys,
    }


def both_times(prepare: Prepare, options: Options) -> Iterator[tuple[Settings, Settings]]:
    """One row with both times of a network: of the wall, and on a GPU always that in kernels.

    Eager networks are often issued more slowly than the device runs them, and most of them wait for
    the device once, so that no spin hides the gaps. The wall time then tells of the host.
    """
    for keys, result in timed(prepare, options, traced=False):
        if options.device.type == "cuda":
            seen = middle_trace(prepare, options)
            if seen.timeline:  # empty where CUPTI is not served
                waits = max(result.get("waits", 0), seen.waits)
                more = {"busy_ms": seen.busy_ms, "launches": seen.launches, "waits": waits}
                result = {**result, **more}
        yield keys, result


def parts_of_network(work: Work, options: Options) -> Iterator[tuple[Settings, Settings]]:
    """A row a part of a network in inference, read off traces."""
    whole, planned = (middle_trace(work.prepare(mode), options) for mode in ("infer", "forward"))
    mapping = {"mapping": max(0.0, whole.busy_ms - planned.busy_ms)}
    for part, spent in (mapping | parts_of_call(planned.timeline)).items():
        yield {"part": part}, {"busy_ms": spent}


def cells_of(options: Options, scene: Scene, size: Size) -> tuple[Cells, Cells]:
    """Cells that a network is timed on, and cells that it is checked on: few enough."""
    grid, device = scene.grid.to(options.device), options.device
    if size.scans > 1:
        grid = aggregated(grid, size.scans)
    most = options.check if (size.kernel or 3) <= 5 else min(options.check, FEW)
    cells, rows = Cells.of(grid, device, size.batches), most // size.batches
    if grid.rows <= rows:
        return cells, cells
    part = replace(grid, keys=grid.keys[:rows], inverse=None)  # they lie side by side
    return cells, Cells.of(part, device, size.batches)


def quickest_thresholds(options: Options, figure: str) -> Iterator[Row]:
    """Spira Tables 1 to 3: number of layers by their quickest threshold, products alone."""
    for scene in scenes(options.workloads):
        for model in options.models or MODELS:
            size = Size(model)
            with products_of(options.dtype):
                counts = Counter(_by_work(options, scene, size, _quickest_threshold))
            for label, layers in sorted(counts.items()):
                row = network_row(options, figure, scene.name, "spira", size, t=label)
                yield {**row, "n": scene.grid.rows, "result": {"layers": layers}}


def _quickest_threshold(options: Options, call: LayerCall) -> str:
    size = round(call.kernel_map.volume ** (1 / 3))
    found = engines.thresholds(max(2, size), options.device)
    labels = [f"t = {said['t']}" for _, said in found]
    labels[0], labels[-1] = "weight-stationary", "output-stationary"
    made = _products(options, call)
    times = [_product_ms(options, partial(made, engine)) for engine, _ in found]
    return labels[times.index(min(times))]


def _products(options: Options, call: LayerCall) -> Callable[[Any], Callable[[], Tensor]]:
    built, device = call.kernel_map, options.device
    random = torch.Generator(device).manual_seed(0)
    x = torch.randn(built.n_in, call.c_in, generator=random, device=device)
    shape = built.volume, call.c_in, call.c_out
    w = torch.randn(shape, generator=random, device=device) * (shape[0] * shape[1]) ** -0.5
    x, w = (tensor.to(torch_dtype(options.dtype)) for tensor in (x, w))
    product = torch.no_grad()(convolution)
    truth = product(x.double(), w.double(), built, resolve("reference"))

    def made(engine: Any) -> Callable[[], Tensor]:
        call = partial(product, x, w, built, engine)
        check.check_values({"out": call()}, {"out": truth}, options.dtype)
        return call

    return made


def _product_ms(options: Options, made: Callable[[], Callable[[], Tensor]]) -> float:
    try:
        product = made()
    except ValueError:  # a map that has no such layout
        return float("inf")
    return device_ms(product, options.device, repeats=7)


def quickest_tiles(options: Options, figure: str) -> Iterator[Row]:
    """Minuet Fig. 20: the quickest tile of gather and scatter, for every layer of MinkUNet42."""
    size = Size("minkunet")
    for scene in scenes(options.workloads):
        with products_of(options.dtype):
            for number, tiles in enumerate(_by_work(options, scene, size, _quickest_tiles), 1):
                row = network_row(options, figure, scene.name, "minuet", size, layer=number)
                yield {**row, "n": scene.grid.rows, "result": tiles}


def _quickest_tiles(options: Options, call: LayerCall) -> dict[str, int]:
    made, found = _products(options, call), {}
    for part, channels in (("gather", call.c_in), ("scatter", call.c_out)):
        spent: dict[int, float] = {}
        for tile in tiles_of(channels):
            words: dict[str, Any] = {f"{part}_tile": tile}
            product = made(GatherScatter(MINUET.grouping, **words))
            spent[tile] = parts_of_call(trace(product, options.device).timeline)[part]
        found[part] = min(spent, key=lambda tile: spent[tile])
    return found


def _by_work(
    options: Options, scene: Scene, size: Size, measure: Callable[[Options, LayerCall], Found]
) -> Iterator[Found]:
    """Measure every layer of a network, once those of one map and equal channels."""
    known: dict[tuple[int, bool, int, int], Found] = {}
    for call in layer_calls(options, scene, size):
        edges = call.kernel_map.edges
        work = id(edges), call.kernel_map.flipped, call.c_in, call.c_out
        if work not in known:
            known[work] = measure(options, call)
        yield known[work]


def layer_calls(options: Options, scene: Scene, size: Size) -> list[LayerCall]:
    network = make_network(size, resolve("auto"), options.width, options.device)
    dtype = torch_dtype(options.dtype)
    network = network.to(dtype).eval()
    x = Cells.of(scene.grid, options.device).to(dtype).on(network, backward=False)
    found: list[LayerCall] = []

    def observe(call: ObservedCall) -> None:
        built, layer = call.kernel_map, call.layer
        if built is not None and built.triplets:
            found.append(LayerCall(built, layer.in_channels, layer.out_channels))

    run_observed(network, x, observe)
    return found


def inference(
    *models: str | Size,
    compared: Callable[[Options], list[Entry]] = engines.with_papers,
    measure: Measure | None = None,
) -> Figure:
    def rows(options: Options, figure: str) -> Iterator[Row]:
        sizes = [Size(one) if isinstance(one, str) else one for one in models]
        return network_rows(options, figure, sizes, ["infer"], compared(options), measure)

    return rows


def over_generated(kind: str, *models: str) -> Figure:
    """Inference from cells on generated scenes of growing size."""

    def rows(options: Options, figure: str) -> Iterator[Row]:
        made = scenes([f"{kind}_{size:g}k" for size in options.sizes])
        sizes = [Size(name) for name in models]
        entries = engines.with_papers(options)
        return network_rows(options, figure, sizes, ["infer"], entries, chosen=made)

    return rows


def kernels_and_batches(options: Options, figure: str) -> Iterator[Row]:
    """Spira Table 4: MinkUNet of larger kernels and batches, time and peak memory."""
    sizes = [Size("minkunet", k, b) for b in (1, 4) for k in options.kernel_sizes]
    return network_rows(options, figure, sizes, ["infer"])


#: The networks of TorchSparse's evaluation without heads of detectors: MinkUNet at half and at full
#: width, and on three scans; the backbone of CenterPoint, and on three scans.
TORCHSPARSE_NETWORKS = (
    Size("minkunet", width=0.5),
    Size("minkunet"),
    Size("minkunet", scans=3),
    Size("sparse_resnet"),
    Size("sparse_resnet", scans=3),
)


def torchsparse_first(options: Options) -> list[Entry]:
    """Gather-scatter as TorchSparse has it, then the options' other engines."""
    table = engines.on(options.device, HashTable())
    others = [(e, said) for e, said in engines.compared(options) if e.name != "torchsparse"]
    return [(Engine("torchsparse", table, TORCHSPARSE), {}), *others]


def ideas(name: str, chosen: Sequence[engines.Step], *models: str) -> Figure:
    """Inference from cells with one more idea of a paper at a time."""
    return inference(*models, compared=lambda o: engines.steps(name, o.device, chosen))


FIGURES: dict[str, Figure] = {
    "networks": network_rows,
    "torchsparse_fig4": inference(
        "minkunet", "sparse_resnet", compared=torchsparse_first, measure=parts_of_network
    ),
    "torchsparse_fig11": inference(*TORCHSPARSE_NETWORKS, compared=engines.baseline),
    "minuet_fig12": inference("sparse_resnet", "minkunet"),
    "minuet_fig13": over_generated("box400", "sparse_resnet", "minkunet"),
    "minuet_fig14": ideas("minuet", engines.MINUET_STEPS, "sparse_resnet", "minkunet"),
    "minuet_fig20": quickest_tiles,
    "spira_fig8": inference(),
    "spira_fig13": ideas("spira", engines.SPIRA_STEPS, "minkunet"),
    "spira_fig16": over_generated("box200"),
    "spira_fig17": over_generated("slab", "sparse_resnet"),
    "spira_table1": quickest_thresholds,
    "spira_table4": kernels_and_batches,
}
