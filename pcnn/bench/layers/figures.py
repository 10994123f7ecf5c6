"""The papers' figures on single layers, each measured on the scenes at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pcnn.bench import engines
from pcnn.bench.charts import View
from pcnn.bench.engines import MOVEMENT, Entry
from pcnn.bench.layer_shape import LayerShape
from pcnn.bench.layers.layer import layer_rows
from pcnn.bench.layers.parts import part_rows
from pcnn.bench.layers.specialised import specialised
from pcnn.bench.place import Place
from pcnn.bench.rows import Row
from pcnn.bench.setting import LayersSetting
from pcnn.bench.suite import Figure
from pcnn.geometry import Kernel
from pcnn.kernels.row_tiles import tiles_of
from pcnn.maps.hash_table import HashTable
from pcnn.ops.engine import Engine

Measure = Callable[[LayersSetting, str], Iterator[Row]]

#: Engine of rows that belong to none: triplets of the slots of a kernel.
NO_ENGINE = "oracle"


def _shapes(*channels: tuple[int, int, int]) -> tuple[LayerShape, ...]:
    return tuple(LayerShape(*shape) for shape in channels)


MINUET = _shapes(
    (4, 16, 3),
    (8, 8, 3),
    (16, 16, 3),
    (32, 32, 3),
    (64, 64, 3),
    (64, 96, 3),
    (128, 128, 3),
    (256, 256, 3),
    (256, 384, 3),
)
SPIRA = _shapes(
    (4, 32, 3),
    (16, 32, 3),
    (32, 32, 3),
    (32, 64, 3),
    (128, 128, 3),
    (16, 16, 5),
    (32, 32, 5),
    (32, 64, 5),
)
THRESHOLDS = _shapes(
    (16, 16, 3), (32, 32, 3), (64, 64, 3), (128, 128, 3), (16, 16, 5), (32, 32, 5), (64, 64, 5)
)
BREAKDOWN = _shapes((32, 32, 3), (32, 32, 5))
#: Layers of MinkUNet42, where TorchSparse compares its groupings and data movement.
MINKUNET = _shapes((32, 32, 3), (64, 64, 3), (96, 96, 3), (128, 128, 3))
ONE_K5 = _shapes((32, 32, 5))


def by_engine(kind: str, shapes: Sequence[LayerShape]) -> Measure:
    """Rows of one kind: the setting's engines and the papers' dataflows on these layers."""

    def measure(setting: LayersSetting, figure: str) -> Iterator[Row]:
        own: list[Entry] = [(engine, {"variant": engine.name}) for engine in setting.engines]
        entries = own + engines.layers_of_papers(setting.where)
        return layer_rows(setting, figure, entries, shapes, [kind])

    return measure


def breakdown(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """Spira Fig. 2: stages of the map and computation, by engine."""
    own: list[Entry] = [(engine, {"variant": engine.name}) for engine in setting.engines]
    entries = own + engines.layers_of_papers(setting.where)
    return part_rows(setting, figure, entries, BREAKDOWN, with_map=True)


def groupings(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """TorchSparse Table 2: time in matrix products by grouping."""
    entries = engines.grouped(setting.where)
    return part_rows(setting, figure, entries, MINKUNET, ["products"])


def groups(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """Minuet Fig. 5: launches and time of products by grouping, movement beside them."""
    entries = engines.grouped(setting.where)
    return part_rows(setting, figure, entries, MINKUNET[:2], ["gather", "products", "scatter"])


def movement(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """TorchSparse Table 3: time of gather and scatter, step by step."""
    builder = engines.on(setting.where, HashTable())
    for name, (dtype, dataflow) in MOVEMENT.items():
        entry: Entry = Engine("torchsparse", builder, dataflow), {"step": name}
        chosen = setting.having(dtype_name=dtype)
        yield from part_rows(chosen, figure, [entry], MINKUNET, ["gather", "scatter"])


def tiles(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """Minuet Fig. 4: time of gather and scatter over the tile, for several channels."""
    for shape in _shapes((16, 16, 3), (64, 64, 3), (128, 128, 3)):
        entries = engines.tiled(setting.where, tiles_of(shape.c_in))
        yield from part_rows(setting, figure, entries, [shape], ["gather", "scatter"])


def thresholds(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """Spira Fig. 11: map and layer over the threshold between the two engines."""
    if setting.where.type != "cuda":
        return
    for size in dict.fromkeys(shape.size for shape in THRESHOLDS):
        shapes = [shape for shape in THRESHOLDS if shape.size == size]
        entries = engines.thresholds(size)
        yield from layer_rows(setting, figure, entries, shapes, ["map+layer"])


def ideas(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """Spira Fig. 14: map and layer with one more of its ideas at a time."""
    if setting.where.type != "cuda":
        return
    entries = engines.ideas_of_spira()
    yield from layer_rows(setting, figure, entries, ONE_K5, ["map+layer"])


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


#: A chart a kind of row and dtype, a panel a scene, a group of bars a layer, and the floors.
LAYERS = (
    View("time", "layer", "engine", "workload", "what dtype", log=True),
    View(
        "floor_ms",
        "layer",
        "=floor",
        "workload",
        "what dtype",
        log=True,
        where=lambda row: row.checked,
    ),
)


def by_layer(setting: str) -> View:
    """A bar a value of a setting, for every layer."""
    return View("time", "layer", setting, "workload", "part", about=setting, log=True)


def stacked_by(setting: str) -> View:
    """Parts of a layer in stacks, one a value of a setting."""
    return View("gpu_busy_ms", setting, "part", "workload shape", kind="stacked", about="part")


SCANS = "scans of the paper's data sets"
FIGURES: tuple[Figure[LayersSetting], ...] = (
    Figure("layers", "single convolutions", "", layer_rows, LAYERS, "a layer"),
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
        specialised,
        (by_layer("searched_on"),),
    ),
    Figure(
        "torchsparse_table2",
        "time in matrix products by grouping",
        "SemanticKITTI and nuScenes",
        groupings,
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
        tiles,
        (by_layer("tile"),),
    ),
    Figure(
        "minuet_fig5",
        "gather, products and scatter by grouping",
        "an example",
        groups,
        (stacked_by("grouping"),),
    ),
    Figure(
        "minuet_fig15",
        "map and layer by engine",
        "SemanticKITTI, S3DIS, Semantic3D, ShapeNetSem",
        by_engine("map+layer", MINUET),
        (by_layer("variant"),),
    ),
    Figure(
        "minuet_fig19",
        "layer without map by engine",
        "SemanticKITTI, S3DIS, Semantic3D, ShapeNetSem",
        by_engine("layer", MINUET),
        (by_layer("variant"),),
    ),
    Figure(
        "spira_fig2",
        "stages of the map, and computation, by engine",
        SCANS,
        breakdown,
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
        by_engine("map+layer", SPIRA),
        (by_layer("variant"),),
    ),
    Figure(
        "spira_fig11",
        "map and layer over the threshold t: slots of smaller L1 norm are output-stationary",
        "SemanticKITTI, ScanNet and Waymo",
        thresholds,
        (by_layer("t"),),
        "a CUDA device",
    ),
    Figure(
        "spira_fig14",
        "map and layer with one more of Spira's ideas at a time",
        "SemanticKITTI, ScanNet and Waymo",
        ideas,
        (by_layer("step"),),
        "a CUDA device",
    ),
)
