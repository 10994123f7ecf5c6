"""The papers' figures on whole networks, each measured on the given scenes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from torch import Tensor

from pcnn.bench import engines, run
from pcnn.bench.charts import BUSY, WALL, View
from pcnn.bench.conformance import check_dataflow
from pcnn.bench.engines import Entry, on, thresholds
from pcnn.bench.harness import Repeats, gpu_time, same, wall_time
from pcnn.bench.layer_products import LayerCall, LayerProduct, disagreement, recorded
from pcnn.bench.layers.layer import products_of, torch_dtype
from pcnn.bench.layers.parts import by_part
from pcnn.bench.networks.cases import NetworkSize, network_row, network_rows, parts
from pcnn.bench.networks.models import KERNEL_SIZE, make_network
from pcnn.bench.networks.work import Cells
from pcnn.bench.peers import NETWORKS
from pcnn.bench.rows import Row
from pcnn.bench.scenes import Scene, load_scene
from pcnn.bench.setting import NetworksSetting
from pcnn.bench.suite import Figure
from pcnn.bench.trace import trace
from pcnn.bench.verify import CheckFailed
from pcnn.dataflows import Dataflow
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE, GatherScatter
from pcnn.dataflows.grouping import Separate
from pcnn.kernels.row_tiles import tiles_of
from pcnn.maps.hash_table import HashTable
from pcnn.ops.engine import Engine, resolve

Found = TypeVar("Found")

#: Repeats of a product for a choice.
REPEATS = Repeats(7, 2, 0.5)


def chosen_thresholds(setting: NetworksSetting, figure: str) -> Iterator[Row]:
    """Spira Tables 1 to 3: number of layers by their quickest threshold, products alone.

    No rows elsewhere than on a GPU.
    """
    if setting.where.type != "cuda":
        return
    for scene in setting.scenes:
        for model in setting.models:
            with products_of(setting.dtype_name):
                found = calls_of(setting, scene, model)
                counts = Counter(_by_work(found, partial(_quickest_threshold, setting)))
            for label, layers in sorted(counts.items()):
                yield _row(setting, scene, figure, model, {"t": label, "layers": layers})


def _quickest_threshold(setting: NetworksSetting, call: LayerCall) -> str:
    size = round(call.kernel_map.volume ** (1 / 3))
    entries = thresholds(max(2, size))
    labels = [f"t = {params['t']}" for _, params in entries]
    labels[0], labels[-1] = "weight-stationary", "output-stationary"
    product = LayerProduct(call, "forward")
    times = [_product_ms(setting, product, e.dataflows(setting.where)[0]) for e, _ in entries]
    return labels[times.index(min(times))]


def _product_ms(setting: NetworksSetting, product: LayerProduct, dataflow: Dataflow) -> float:
    try:
        run = _checked(product, dataflow)
    except ValueError:  # a map that has no such layout
        return float("inf")
    found = gpu_time(same(run), setting.where, REPEATS)
    if found is None:  # the call waits for the device
        return wall_time(same(run), setting.where, REPEATS).median
    return found[0].median


def _checked(product: LayerProduct, dataflow: Dataflow) -> Callable[[], Tensor]:
    """A product of a call; CheckFailed or ValueError where it is wrong or not served."""
    check_dataflow(dataflow, product.call.device)
    run = product.prepared(dataflow)
    dtype = product.call.precision
    wrong = disagreement(run(), product.truth, dtype, product.terms)
    if wrong:
        raise CheckFailed(f"{dataflow.name}, forward product of a layer: it {wrong}")
    return run


def chosen_tiles(setting: NetworksSetting, figure: str) -> Iterator[Row]:
    """Minuet Fig. 20: the quickest tile of gather and scatter, for every layer of MinkUNet42."""
    for scene in setting.scenes:
        with products_of(setting.dtype_name):
            found = calls_of(setting, scene, "minkunet")
            quickest = _by_work(found, partial(_quickest_tiles, setting))
            for number, tiles in enumerate(quickest, 1):
                yield _row(setting, scene, figure, "minkunet", {"layer": number, **tiles})


def _quickest_tiles(setting: NetworksSetting, call: LayerCall) -> dict[str, int]:
    product = LayerProduct(call, "forward")
    return {
        "gather": _quickest_tile(setting, product, "gather", tiles_of(call.c_in)),
        "scatter": _quickest_tile(setting, product, "scatter", tiles_of(call.c_out)),
    }


def _quickest_tile(
    setting: NetworksSetting, product: LayerProduct, part: str, tiles: Sequence[int]
) -> int:
    spent: dict[int, float] = {}
    for tile in tiles:
        words: dict[str, Any] = {f"{part}_tile": tile}
        run = _checked(product, GatherScatter(MINUET.grouping, **words))
        spent[tile] = by_part(trace(run, setting.where).timeline)[part]
    return min(spent, key=lambda tile: spent[tile])


def _by_work(
    calls: Sequence[tuple[str, LayerCall]], measure: Callable[[LayerCall], Found]
) -> Iterator[Found]:
    """Measure every call, once for those of one map and equal channels."""
    known: dict[tuple[int, bool, int, int], Found] = {}
    for _, call in calls:
        edges = call.kernel_map.edges
        work = id(edges), call.kernel_map.flipped, call.c_in, call.c_out
        if work not in known:
            known[work] = measure(call)
        yield known[work]


def calls_of(setting: NetworksSetting, scene: Scene, model: str) -> list[tuple[str, LayerCall]]:
    """Calls of all layers of a network that read a kernel map, by name, in their order."""
    size, width = KERNEL_SIZE[model], setting.width
    network = make_network(model, resolve("auto"), size, width, setting.where)
    network = network.to(torch_dtype(setting.dtype_name)).eval()
    cells = Cells.of(scene.grid, setting.where)
    x = cells.on(network, backward=False, dtype=torch_dtype(setting.dtype_name))
    return [(name, calls[0]) for name, calls in recorded(network, [x]).items()]


def _row(
    setting: NetworksSetting, scene: Scene, figure: str, model: str, params: Mapping[str, int | str]
) -> Row:
    row = network_row(setting, scene.name, "choice", model, figure, params)
    return replace(row, n=scene.grid.rows)


Measure = Callable[[NetworksSetting, str], Iterator[Row]]

#: Clouds of a batch in Spira Table 4.
BATCHES = (1, 4)


def with_papers(setting: NetworksSetting) -> list[Entry]:
    """The setting's engines, and the papers'."""
    return engines.with_papers(setting.engines, setting.where)


def inference(
    *models: str | NetworkSize,
    compared: Callable[[NetworksSetting], list[Entry]] = with_papers,
    parts: run.Measure | None = None,
) -> Measure:
    """Inference from cells of these networks, or of the setting's where none is named."""

    def measure(setting: NetworksSetting, figure: str) -> Iterator[Row]:
        sizes = [NetworkSize(one) if isinstance(one, str) else one for one in models]
        return network_rows(setting, figure, sizes, ["infer"], compared(setting), parts)

    return measure


def over_generated(kind: str, *models: str) -> Measure:
    """Inference from cells on generated scenes of growing size."""

    def measure(setting: NetworksSetting, figure: str) -> Iterator[Row]:
        scenes = [load_scene(f"{kind}_{size}k") for size in setting.size_list]
        return inference(*models)(setting.having(scenes=scenes), figure)

    return measure


def kernels_and_batches(setting: NetworksSetting, figure: str) -> Iterator[Row]:
    """Spira Table 4: MinkUNet of larger kernels and batches, time and peak memory.

    Networks of large kernels are checked on few voxels: the reference keeps all their products.
    """
    few = setting.having(check_voxels=min(setting.check_voxels, 20_000))
    for batches in BATCHES:
        for size in setting.kernel_size_list:
            chosen = setting if size <= 3 and batches == 1 else few
            yield from network_rows(
                chosen, figure, [NetworkSize("minkunet", size, batches)], ["infer"]
            )


#: The networks of TorchSparse's evaluation without heads of detectors: MinkUNet at half and at full
#: width, and on three scans; the backbone of CenterPoint, and on three scans.
TORCHSPARSE_NETWORKS = (
    NetworkSize("minkunet", width=0.5),
    NetworkSize("minkunet"),
    NetworkSize("minkunet", scans=3),
    NetworkSize("sparse_resnet"),
    NetworkSize("sparse_resnet", scans=3),
)


def with_baseline(setting: NetworksSetting) -> list[Entry]:
    """The papers' engines and the setting's, and what TorchSparse measures itself against.

    The baseline gathers, multiplies and scatters slot by slot, one channel a thread.
    """
    plain = GatherScatter(Separate(), fused=False, locality=False, vectorised=False)
    first: Entry = Engine("baseline", on(setting.where, HashTable()), plain), {}
    return [first, *with_papers(setting)]


def torchsparse_first(setting: NetworksSetting) -> list[Entry]:
    """Gather-scatter as TorchSparse has it, then the setting's other engines."""
    first: Entry = Engine("torchsparse", on(setting.where, HashTable()), TORCHSPARSE), {}
    own: list[Entry] = [(e, {}) for e in setting.engines if e.name != "torchsparse"]
    return [first, *own]


def ideas(name: str, steps: tuple[engines.Step, ...], *models: str) -> Measure:
    """Inference from cells with one more idea of a paper at a time."""
    return inference(*models, compared=lambda s: engines.steps(name, s.where, steps))


#: A chart a mode, a panel a network, a group of bars a scene, a bar an engine.
BARS: Any = {"x": "workload", "series": "engine", "panel": "model", "chart": "mode"}
#: Times in place of the bars, beside other engines' own code.
TIMES = View(
    **BARS,
    y="wall_ms",
    kind="points",
    log=True,
    label=WALL,
    about="from shuffled cells",
    beside=NETWORKS,
)
CELLS = "inference from cells"
#: The same in kernels: host and launches play no part.
KERNELS = View(**BARS, y="gpu_busy_ms", kind="points", log=True, label=BUSY, suffix="busy")
MEMORY = "peak memory above what was there [MiB]"
OVER_SIZE = tuple(
    View(y, "n", "engine", "model", kind="lines", log=True, label=label, suffix=suffix, about=CELLS)
    for y, label, suffix in (("wall_ms", WALL, ""), ("gpu_busy_ms", BUSY, "busy"))
)

BY_STEP = tuple(
    View(y, "step", "engine", "model workload", label=label, suffix=suffix)
    for y, label, suffix in (("wall_ms", WALL, ""), ("gpu_busy_ms", BUSY, "busy"))
)

FIGURES: tuple[Figure[NetworksSetting], ...] = (
    Figure(
        "networks",
        "whole networks",
        "",
        network_rows,
        (
            TIMES,
            View(**BARS, y="gpu_busy_ms", label=BUSY, suffix="busy"),
            View(**BARS, y="memory_mb", label=MEMORY, suffix="memory"),
        ),
        "a net",
    ),
    Figure(
        "torchsparse_fig11",
        "networks by engine, runs in a second; figure 14 in absolute numbers",
        "MinkUNet and CenterPoint on SemanticKITTI, nuScenes and Waymo",
        inference(*TORCHSPARSE_NETWORKS, compared=with_baseline),
        (
            View(
                "runs_per_second",
                "workload",
                "engine",
                "model sizes",
                kind="points",
                log=True,
                label="runs in a second",
            ),
        ),
    ),
    Figure(
        "minuet_fig12",
        "networks by engine",
        "SemanticKITTI, S3DIS, Semantic3D, ShapeNetSem",
        inference("sparse_resnet", "minkunet"),
        (TIMES, KERNELS),
    ),
    Figure(
        "minuet_fig13",
        "networks by engine, over the density of a random scene",
        "the same kind of scene, 400^3 cells",
        over_generated("box400", "sparse_resnet", "minkunet"),
        OVER_SIZE,
    ),
    Figure(
        "spira_fig8",
        "networks by engine; figures 9 and 18 to 21 on other GPUs",
        "SemanticKITTI, ScanNet and Waymo",
        inference(),
        (TIMES, KERNELS),
    ),
    Figure(
        "spira_fig16",
        "networks by engine, over the density of a random scene",
        "the same kind of scene, 200^3 cells",
        over_generated("box200"),
        OVER_SIZE,
    ),
    Figure(
        "spira_fig17",
        "SparseResNet21 by engine, over the size of a random scene of 1.25 %",
        "the same kind of scene, 200 cells high",
        over_generated("slab", "sparse_resnet"),
        OVER_SIZE,
    ),
    Figure(
        "spira_table4",
        "MinkUNet42 by kernel size (K) and batch (B)",
        "Waymo",
        kernels_and_batches,
        (
            View("wall_ms", "sizes", "engine", "model workload", suffix="time"),
            View("memory_mb", "sizes", "engine", "model workload", label=MEMORY, suffix="memory"),
        ),
    ),
    Figure(
        "torchsparse_fig4",
        "where the time of a network goes, by engine",
        "MinkUNet on SemanticKITTI, CenterPoint on Waymo",
        inference("minkunet", "sparse_resnet", compared=torchsparse_first, parts=parts),
        (View("gpu_busy_ms", "engine", "part", "model workload", kind="stacked", label=BUSY),),
    ),
    Figure(
        "minuet_fig14",
        "networks with one more of Minuet's ideas at a time",
        "SemanticKITTI, S3DIS, Semantic3D, ShapeNetSem",
        ideas("minuet", engines.MINUET_STEPS, "sparse_resnet", "minkunet"),
        BY_STEP,
    ),
    Figure(
        "minuet_fig20",
        "quickest tiles of gather and scatter, layer by layer of MinkUNet42",
        "the paper's clouds and GPUs",
        chosen_tiles,
        tuple(
            View(
                part, "of_layer", f"={part}", "workload", kind="points", label="channels", log=True
            )
            for part in ("gather", "scatter")
        ),
    ),
    Figure(
        "spira_fig13",
        "MinkUNet42 with one more of Spira's ideas at a time",
        "SemanticKITTI, ScanNet and Waymo",
        ideas("spira", engines.SPIRA_STEPS, "minkunet"),
        BY_STEP,
    ),
    Figure(
        "spira_table1",
        "layers by their quickest threshold; tables 2 and 3 are the other networks",
        "SemanticKITTI, ScanNet and Waymo",
        chosen_thresholds,
        (View("layers", "model", "t", "model workload", kind="stacked", label="layers"),),
        "a CUDA device",
    ),
)
