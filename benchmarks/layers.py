"""Times of single convolutions, with and without backward and maps, and figures about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from benchmarks import check, engines
from benchmarks.convolution import (
    BACKWARD,
    KINDS,
    InstalledLayer,
    Layer,
    Operands,
    Place,
    Shape,
    bare,
    new_map,
    products_of,
    shapes,
)
from benchmarks.engines import Entry, Settings
from benchmarks.peers.base import Peer
from benchmarks.rows import Row
from benchmarks.run import Case, Measure, Options, by_part, middle_trace, run, timed
from benchmarks.workloads import Scene, scenes
from pcnn.dataflows.gather_scatter import GatherScatter
from pcnn.dataflows.grouping import Adaptive
from pcnn.geometry import Kernel
from pcnn.kernels.product_tiles import tiles_of
from pcnn.maps import HashTable
from pcnn.ops.engine import Engine
from pcnn.runtime.timing import Call

#: Layers that the papers' networks are made of.
STANDARD = ["4:16:3,16:16:3,32:32:3,64:64:3,64:128:3,128:128:3,256:256:3,16:16:5,32:32:5,64:64:5"]


def layer_cases(
    options: Options,
    figure: str,
    place: Place,
    shape: Shape,
    kinds: Sequence[str],
    entries: Sequence[Entry],
    measure: Measure | None = None,
    **keys: Any,
) -> Iterator[Case]:
    """A layer at one place, by all engines and in all kinds."""
    operands = Operands.at(place, shape, options.dtype)
    truth = operands.truth(place, any(kind in BACKWARD for kind in kinds))
    columns = {"dtype": options.dtype, "c_in": shape.c_in, "c_out": shape.c_out}
    for engine, said in entries:

        @cache  # of what was made without an error
        def layer(engine: Engine | Peer = engine) -> Layer | InstalledLayer:
            if isinstance(engine, Peer):
                return InstalledLayer(engine, place, operands)
            if options.gate:
                check.gate(engine, options.device)
            return Layer(engine, place, operands)

        for kind in kinds:
            row = place.row(kind, engine.name, figure, **columns, **keys, **said)

            def checked(kind: str = kind, layer: Any = layer) -> Any:
                made = layer()
                check.check_values(made.results(kind), truth, options.dtype, place.longest)
                return made if measure else made.prepare(kind)

            yield Case(row, checked, measure or timed)


def layer_rows(
    options: Options,
    figure: str,
    compared: Callable[[Shape], Sequence[Entry]] | None = None,
    layers: Sequence[Shape] | None = None,
    kinds: Sequence[str] | None = None,
    measure: Measure | None = None,
) -> Iterator[Row]:
    """Check, then time, every layer on every scene; ``None``: what the options say."""
    own = engines.compared(options)
    for scene in scenes(options.workloads, options.sites):
        places: dict[Kernel, Place] = {}
        for shape in layers or shapes(options.shapes or STANDARD):
            if shape.kernel not in places:  # one at a time: their triplets take memory
                places = {shape.kernel: place_of(scene, shape.kernel, options)}
            with products_of(options.dtype):
                yield from run(
                    layer_cases(
                        options,
                        figure,
                        places[shape.kernel],
                        shape,
                        kinds or options.modes or KINDS,
                        compared(shape) if compared else own,
                        measure,
                    ),
                    options,
                )


def place_of(scene: Scene, kernel: Kernel, options: Options) -> Place:
    return Place(scene.name, scene.grid.to(options.device), kernel)


#: Parts of a call by the names of its kernels, of torch's operators on a CPU; the first that meets.
PARTS = {
    "products": re.compile(
        r"gemm|cutlass|nvjet|xmma|cublas|splitk|::mm|::bmm|stationary|dense_slots|outer_products",
        re.IGNORECASE,
    ),
    "gather": re.compile(r"gather|index_select|embedding", re.IGNORECASE),
    "scatter": re.compile(r"scatter|index_add", re.IGNORECASE),
}
#: Names of kernels, and of torch's operators on a CPU, that search. `split_queries` is the backward
#: half of the double-traversed search; `disjoint_map` looks for the one parent of every site.
SEARCH = re.compile(r"search|split_queries|z_delta|disjoint|first_windows", re.IGNORECASE)
NO_SEARCH = re.compile(r"sort(?!ed)", re.IGNORECASE)
STAGES = ("prepare", "search", "finish")  # stages of the build of a map


def parts_of_call(timeline: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Device time of every part of a call [ms]; ``rest``: fills, copies, casts, norms."""
    sums = dict.fromkeys((*PARTS, "rest"), 0.0)
    for name, spent in timeline:
        part = next((part for part, words in PARTS.items() if words.search(name)), "rest")
        sums[part] += spent / 1e3
    return sums


def stages_of_map(timeline: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Device time of every stage of a map's build [ms]; no search means that all prepares."""
    found = [
        place
        for place, (name, _) in enumerate(timeline)
        if SEARCH.search(name) and not NO_SEARCH.search(name)
    ]
    first, last = (found[0], found[-1]) if found else (len(timeline), len(timeline))
    sums = dict.fromkeys(STAGES, 0.0)
    for place, (_, spent) in enumerate(timeline):
        sums["prepare" if place < first else "search" if place <= last else "finish"] += spent / 1e3
    return sums


def of_parts(*kept: str) -> Measure:
    split = by_part(parts_of_call, "part", kept)

    def measure(layer: Layer, options: Options) -> Any:
        return split(layer.prepare("layer"), options)

    return measure


def map_and_compute(layer: Layer, options: Options) -> Iterator[tuple[Settings, Settings]]:
    """A row for each stage of the map, and one for all computation."""

    def build() -> Call:
        sites = bare(layer.place.grid)

        def call() -> object:
            built = new_map(layer.engine, sites, layer.place.kernel)
            return [built.layout(name) for name in layer.dataflow.needs]

        return call

    spent: Mapping[str, float] = stages_of_map(middle_trace(build, options).timeline)
    computed = parts_of_call(middle_trace(layer.prepare("layer"), options).timeline)
    for part, milliseconds in {**spent, "compute": sum(computed.values())}.items():
        yield {"part": part}, {"busy_ms": milliseconds}


def by_variant(options: Options, _: Shape) -> list[Entry]:
    own = [(engine, {"variant": engine.name}) for engine in engines.ours(options)]
    return [*own, *engines.layers_of_papers(options.device)]


def movement(options: Options, figure: str) -> Iterator[Row]:
    """TorchSparse Table 3: time of gather and scatter, step by step."""
    for name, (dtype, dataflow) in engines.MOVEMENT.items():
        step = [(name, HashTable(), dataflow)]
        entry = engines.entries("torchsparse", "step", options.device, step)
        own = replace(options, dtype=dtype if options.device.type == "cuda" else "float32")
        own.began = options.began
        yield from layer_rows(own, figure, lambda _, e=entry: e, MINKUNET, ["layer"], MOVED)


def pairs_by_slot(options: Options, figure: str) -> Iterator[Row]:
    """TorchSparse Fig. 12: triplets of every slot of a 3^3 kernel, and of the strided 2^3 one."""
    for scene in scenes(options.workloads):
        for size, stride in ((3, 1), (2, 2)):
            place = place_of(scene, Kernel.of(size, stride), options)
            for slot, (j, _) in enumerate(place.pairs):
                yield place.row("map", "truth", figure, slot=slot) | {"result": {"pairs": len(j)}}


def filled_by_norm(options: Options, figure: str) -> Iterator[Row]:
    """Spira Fig. 3b: share of the output rows that fill a slot, by its L1 norm, at K = 5."""
    for scene in scenes(options.workloads):
        kernel = Kernel.of(5)
        place = place_of(scene, kernel, options)
        counts: dict[int, list[int]] = {}
        for offset, (j, _) in zip(kernel.offsets, place.pairs, strict=True):
            counts.setdefault(sum(map(abs, offset)), []).append(len(j))
        for norm, found in sorted(counts.items()):
            share = 100 * sum(found) / (len(found) * max(1, place.target.rows))
            result = {"filled_percent": round(share, 3)}
            yield place.row("map", "truth", figure, norm=norm) | {"result": result}


#: A coarse search space of TorchSparse Table 1: tolerances, and rows from which single products
#: serve.
EPSILONS, FROM_ROWS = (0.0, 0.1, 0.25, 0.5, 1.0), (0.0, 4096.0, 65536.0, float("inf"))


def groupings_by_scene(options: Options, figure: str) -> Iterator[Row]:
    """TorchSparse Table 1a: search on every scene, then time what was found on every scene."""
    found = scenes(options.workloads)

    @cache
    def entries(shape: Shape) -> list[Entry]:
        chosen = [(o.name, HashTable(), GatherScatter(_searched(options, o, shape))) for o in found]
        return engines.entries("torchsparse", "searched_on", options.device, chosen)

    return layer_rows(options, figure, entries, shapes(["32:32:3,96:96:3"]), ["layer"])


def _searched(options: Options, scene: Scene, shape: Shape) -> Adaptive:
    """The adaptive grouping by which a layer is quickest on a scene; of equal groups the first."""
    place = place_of(scene, shape.kernel, options)
    operands = Operands.at(place, shape, options.dtype)
    sizes = [len(j) for j, _ in place.pairs]
    distinct: dict[Any, Adaptive] = {}
    for one in (Adaptive(e, s) for e in EPSILONS for s in FROM_ROWS):
        distinct.setdefault(one.groups(sizes), one)
    table = engines.on(options.device, HashTable())

    def products_ms(one: Adaptive) -> float:
        layer = Layer(Engine("torchsparse", table, GatherScatter(one)), place, operands)
        return parts_of_call(middle_trace(layer.prepare("layer"), options).timeline)["products"]

    return min(distinct.values(), key=products_ms)


MINUET = shapes(["4:16:3,8:8:3,16:16:3,32:32:3,64:64:3,64:96:3,128:128:3,256:256:3,256:384:3"])
SPIRA = shapes(["4:32:3,16:32:3,32:32:3,32:64:3,128:128:3,16:16:5,32:32:5,32:64:5"])
THRESHOLDS = shapes(["16:16:3,32:32:3,64:64:3,128:128:3,16:16:5,32:32:5,64:64:5"])
#: Layers of MinkUNet42, where TorchSparse compares its groupings and data movement.
MINKUNET = shapes(["32:32:3,64:64:3,96:96:3,128:128:3"])
MOVED = of_parts("gather", "scatter")


def of(
    compared: Callable[[Options, Shape], list[Entry]],
    layers: Sequence[Shape],
    kind: str = "layer",
    measure: Measure | None = None,
) -> Callable[[Options, str], Iterator[Row]]:
    """Rows of one kind of these layers; of their parts, if ``measure`` makes these."""

    def rows(options: Options, figure: str) -> Iterator[Row]:
        return layer_rows(
            options, figure, lambda shape: compared(options, shape), layers, [kind], measure
        )

    return rows


FIGURES: dict[str, Callable[[Options, str], Iterator[Row]]] = {
    "layers": layer_rows,
    "torchsparse_fig12": pairs_by_slot,
    "torchsparse_table1": groupings_by_scene,
    "torchsparse_table2": of(
        lambda o, _: engines.grouped(o.device), MINKUNET, measure=of_parts("products")
    ),
    "torchsparse_table3": movement,
    "minuet_fig4": of(
        lambda o, shape: engines.tiled(o.device, tiles_of(shape.c_in)),
        shapes(["16:16:3,64:64:3,128:128:3"]),
        measure=MOVED,
    ),
    "minuet_fig5": of(
        lambda o, _: engines.grouped(o.device),
        MINKUNET[:2],
        measure=of_parts("gather", "products", "scatter"),
    ),
    "minuet_fig15": of(by_variant, MINUET, "map+layer"),
    "minuet_fig19": of(by_variant, MINUET),
    "spira_fig2": of(by_variant, shapes(["32:32:3,32:32:5"]), measure=map_and_compute),
    "spira_fig3b": filled_by_norm,
    "spira_fig10": of(by_variant, SPIRA, "map+layer"),
    "spira_fig11": of(
        lambda o, shape: engines.thresholds(shape.size, o.device), THRESHOLDS, "map+layer"
    ),
    "spira_fig14": of(
        lambda o, _: engines.ideas_of_spira(o.device), shapes(["32:32:5"]), "map+layer"
    ),
}
