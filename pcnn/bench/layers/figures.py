"""The papers' figures on single layers, each measured on the given scenes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pcnn.bench import engines, run
from pcnn.bench.charts import View
from pcnn.bench.engines import MOVEMENT, Entry
from pcnn.bench.layer_shape import LayerShape, layer_shapes
from pcnn.bench.layers.batched import batched_products
from pcnn.bench.layers.cases import layer_rows
from pcnn.bench.layers.grouping import of_scenes, of_widths
from pcnn.bench.layers.parts import parts_of
from pcnn.bench.peers import LAYERS as PEER_LAYERS
from pcnn.bench.place import Place
from pcnn.bench.rows import Row
from pcnn.bench.setting import LayersSetting
from pcnn.bench.suite import Figure
from pcnn.geometry import Kernel
from pcnn.kernels.row_tiles import tiles_of
from pcnn.maps.hash_table import HashTable

Measure = Callable[[LayersSetting, str], Iterator[Row]]

#: Engine of rows that belong to none: triplets of the slots of a kernel.
NO_ENGINE = "oracle"


MINUET = layer_shapes("4:16:3,8:8:3,16:16:3,32:32:3,64:64:3,64:96:3,128:128:3,256:256:3,256:384:3")
SPIRA = layer_shapes("4:32:3,16:32:3,32:32:3,32:64:3,128:128:3,16:16:5,32:32:5,32:64:5")
THRESHOLDS = layer_shapes("16:16:3,32:32:3,64:64:3,128:128:3,16:16:5,32:32:5,64:64:5")
BREAKDOWN = layer_shapes("32:32:3,32:32:5")
#: Layers of MinkUNet42, where TorchSparse compares its groupings and data movement.
MINKUNET = layer_shapes("32:32:3,64:64:3,96:96:3,128:128:3")
ONE_K5 = layer_shapes("32:32:5")
TILED = layer_shapes("16:16:3,64:64:3,128:128:3")
#: Movement of rows alone.
MOVED = parts_of(["gather", "scatter"])
#: Engines and their settings, from the setting and a layer.
Compared = Callable[[LayersSetting, LayerShape], list[Entry]]


def of_layers(
    compared: Compared,
    shapes: Sequence[LayerShape],
    kind: str = "layer",
    parts: run.Measure | None = None,
    only_cuda: bool = False,
) -> Measure:
    """Rows of one kind of these layers; of their parts, if ``parts`` measures these."""

    def measure(setting: LayersSetting, figure: str) -> Iterator[Row]:
        if only_cuda and setting.where.type != "cuda":
            return
        yield from layer_rows(setting, figure, partial(compared, setting), shapes, [kind], parts)

    return measure


def by_engine(setting: LayersSetting, _: LayerShape) -> list[Entry]:
    """The setting's engines, and the papers' dataflows."""
    own: list[Entry] = [(engine, {"variant": engine.name}) for engine in setting.engines]
    return own + engines.layers_of_papers(setting.where)


def by_grouping(setting: LayersSetting, _: LayerShape) -> list[Entry]:
    """Gather-scatter with every grouping."""
    return engines.grouped(setting.where)


def by_tile(setting: LayersSetting, shape: LayerShape) -> list[Entry]:
    """Gather-scatter with every tile that divides the channels."""
    return engines.tiled(setting.where, tiles_of(shape.c_in))


def movement(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """TorchSparse Table 3: time of gather and scatter, step by step."""
    for name, (dtype, dataflow) in MOVEMENT.items():
        step = [(name, HashTable(), dataflow)]
        entry = engines.entries("torchsparse", "step", setting.where, step)
        measure = of_layers(lambda *_, entry=entry: entry, MINKUNET, parts=MOVED)  # type: ignore[misc]
        yield from measure(setting.having(dtype_name=dtype), figure)


def pairs_by_slot(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """TorchSparse Fig. 12: triplets of every slot of a 3^3 kernel, and of the strided 2^3 one."""
    for scene in setting.scenes:
        for size, stride in ((3, 1), (2, 2)):
            place = Place.of(scene, Kernel.of(size, stride), setting.where)
            for slot, (j, _) in enumerate(place.pairs):
                yield place.row("map", NO_ENGINE, figure, {"slot": slot, "pairs": len(j)})


def filled_by_norm(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """Spira Fig. 3b: share of the output rows that fill a slot, by its L1 norm, at K = 5."""
    for scene in setting.scenes:
        kernel = Kernel.of(5)
        place = Place.of(scene, kernel, setting.where)
        counts: dict[int, list[int]] = {}
        for offset, (j, _) in zip(kernel.offsets, place.pairs, strict=True):
            counts.setdefault(sum(map(abs, offset)), []).append(len(j))
        for norm, found in sorted(counts.items()):
            share = 100 * sum(found) / (len(found) * max(1, place.target.rows))
            said = {"norm": norm, "filled_percent": round(share, 3)}
            yield place.row("map", NO_ENGINE, figure, said)


#: A chart a kind of row and dtype, a panel a scene, a group of points a layer.
LAYERS = View(
    "time",
    "layer",
    "engine",
    "workload",
    "what dtype",
    kind="points",
    log=True,
    beside=PEER_LAYERS,
)


def by_layer(setting: str, name: str = "") -> View:
    """A point a value of a setting, for every layer; ``name`` stands before the values."""
    return View(
        "time",
        "layer",
        f"{name} {setting}",
        "workload",
        "part",
        kind="points",
        about=f"by {setting.replace('_', ' ')}",
        log=True,
    )


def stacked_by(setting: str) -> View:
    """Parts of a layer in stacks, one a value of a setting."""
    return View("gpu_busy_ms", setting, "part", "workload shape", kind="stacked", about="part")


SCANS = "scans of the paper's data sets"
FIGURES: tuple[Figure[LayersSetting], ...] = (
    Figure("layers", "single convolutions", "", layer_rows, (LAYERS,), "a layer"),
    Figure(
        "torchsparse_fig7",
        "rate of the products of a layer, so many of them in a call",
        "the first layer of MinkUNet on SemanticKITTI",
        batched_products,
        (View("tflops", "batch", "engine", "shape workload", kind="points", label="TFLOP/s"),),
    ),
    Figure(
        "torchsparse_fig12",
        "triplets of every slot",
        "SemanticKITTI and nuScenes",
        pairs_by_slot,
        (View("pairs", "slot", "workload", "kernel", label="triplets"),),
    ),
    Figure(
        "torchsparse_table1",
        "an adaptive grouping searched on one scene, used on others",
        "SemanticKITTI and nuScenes",
        of_scenes,
        (by_layer("searched_on", "=searched_on"),),
    ),
    Figure(
        "torchsparse_table1_models",
        "an adaptive grouping searched for one width of MinkUNet, used for the other",
        "SemanticKITTI",
        of_widths,
        (by_layer("searched_for", "=searched_for"),),
    ),
    Figure(
        "torchsparse_table2",
        "time in matrix products by grouping",
        "SemanticKITTI and nuScenes",
        of_layers(by_grouping, MINKUNET, parts=parts_of(["products"])),
        (by_layer("grouping"),),
    ),
    Figure(
        "torchsparse_table3",
        "time of gather and scatter, each step with those before it",
        "SemanticKITTI",
        movement,
        (by_layer("step"),),
    ),
    Figure(
        "minuet_fig4",
        "time of gather and scatter over the channels of a tile",
        "the paper's clouds and GPUs",
        of_layers(by_tile, TILED, parts=MOVED),
        (by_layer("tile", "=tile"),),
    ),
    Figure(
        "minuet_fig5",
        "gather, products and scatter by grouping",
        "an example",
        of_layers(by_grouping, MINKUNET[:2], parts=parts_of(["gather", "products", "scatter"])),
        (stacked_by("grouping"),),
    ),
    Figure(
        "minuet_fig15",
        "map and layer by engine",
        "SemanticKITTI, S3DIS, Semantic3D, ShapeNetSem",
        of_layers(by_engine, MINUET, "map+layer"),
        (by_layer("variant"),),
    ),
    Figure(
        "minuet_fig19",
        "layer without map by engine",
        "SemanticKITTI, S3DIS, Semantic3D, ShapeNetSem",
        of_layers(by_engine, MINUET),
        (by_layer("variant"),),
    ),
    Figure(
        "spira_fig2",
        "stages of the map, and computation, by engine",
        SCANS,
        of_layers(by_engine, BREAKDOWN, parts=parts_of(with_map=True)),
        (stacked_by("variant_or_engine"),),
    ),
    Figure(
        "spira_fig3b",
        "share of filled slots by their L1 norm",
        "SemanticKITTI, ScanNet and Waymo",
        filled_by_norm,
        (View("filled_percent", "norm", "workload", "kernel", label="filled [%]"),),
    ),
    Figure(
        "spira_fig10",
        "map and layer by engine",
        "SemanticKITTI, ScanNet and Waymo",
        of_layers(by_engine, SPIRA, "map+layer"),
        (by_layer("variant"),),
    ),
    Figure(
        "spira_fig11",
        "map and layer over the threshold t: slots of smaller L1 norm are output-stationary",
        "SemanticKITTI, ScanNet and Waymo",
        of_layers(
            lambda _, shape: engines.thresholds(shape.size), THRESHOLDS, "map+layer", only_cuda=True
        ),
        (by_layer("t", "=t"),),
        "a CUDA device",
    ),
    Figure(
        "spira_fig14",
        "map and layer with one more of Spira's ideas at a time",
        "SemanticKITTI, ScanNet and Waymo",
        of_layers(lambda *_: engines.ideas_of_spira(), ONE_K5, "map+layer", only_cuda=True),
        (by_layer("step"),),
        "a CUDA device",
    ),
)
