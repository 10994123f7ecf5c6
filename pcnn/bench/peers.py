"""Times of other engines, and where they meet ours: maps, layers, networks and native points.

The times of a file are those of its peers at their best setting. A peer's time is the smallest that
the file tells, of a map the smaller of its GPU and its wall time: with host syncs the GPU time
behind a spin can exceed the wall time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcnn.bench.best_times import Aim, Best, Comparer, Comparison, Place, best_of_peers, compare
from pcnn.bench.layer_shape import KINDS, LayerShape
from pcnn.bench.rows import Row, present
from pcnn.bench.scenes import GENERATED_MARK
from pcnn.errors import UserError
from pcnn.files.text import read_json

Rows = Sequence[Mapping[str, Any]]

#: Dtypes in the peers' files, and ours.
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
#: The product of a peer's setting, in the names of `pcnn.bench.mapping.products`. Spira's dataflow
#: 0 reads a neighbour table, 1 the triplets by slot, 2 both; TorchSparse++ makes the table for each
#: map and sorts it for split masks; spconv's implicit GEMM and FlexGEMM's masked one sort by mask
#: too.
DELIVERS = {
    ("spira", "dataflow0"): "table",
    ("spira", "dataflow1"): "pairs",
    ("spira", "dataflow2"): "pairs",
    ("spira64", "dataflow0"): "table",
    ("spira64", "dataflow1"): "pairs",
    ("spira64", "dataflow2"): "pairs",
    ("torchsparse", "hashmap_on_the_fly"): "table",
    ("torchsparse", "hashmap"): "pairs",
    ("torchsparse", "hashmap_on_the_fly+sort3"): "ready",
    ("minuet", "full"): "pairs",
    ("spconv", "Native"): "pairs",
    ("spconv", "MaskImplicitGemm"): "ready",
    ("flexgemm", "implicit_gemm"): "table",
    ("flexgemm", "masked_implicit_gemm"): "ready",
    ("warpconvnet", "default"): "pairs",
}
#: The map that a layer's time may stand on: ours of this product, no slower than this peer's.
BAR = ("ready", "spira", "dataflow1")
#: In the settings of networks of peers that do other work: sites that a larger kernel than its
#: stride adds make a different network.
OTHER_WORK = ("NOT the same work", "keeps more outputs")
#: Name of the official code of PointCNN++, and our variants that compute the same thing.
OFFICIAL, SAME_AS_OFFICIAL = "pointelligence", ("native", "pointcnnpp")
#: The official map is held against ours with all layouts that forward and backward read.
OFFICIAL_PRODUCT = "train"

_PEER_RATIO = "ratios are peer / ours: above 1 we are quicker; no slower: within 5 % or 2 us"


@dataclass(frozen=True)
class Peers:
    """Times of other engines.

    Args:
        device: where they were measured.
        rows: as in `pcnn.bench.rows`, with the setting of the engine under ``variant``.
    """

    device: str
    rows: list[dict[str, Any]]


def read_peers(path: Path) -> Peers:
    """Read a file of peers' times.

    Raises:
        ValueError: the file is none.
    """
    try:
        content = read_json(path)
        return Peers(str(content["header"]["device"]), [dict(row) for row in content["rows"]])
    except (UserError, OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a file of peers' times ({error})") from error


def compare_all(rows: Sequence[Row], peers: Rows) -> list[tuple[Comparer, list[Comparison]]]:
    """Comparisons of every kind of row that both sides have."""
    found = [(comparer, compare(comparer, rows, peers)) for comparer in COMPARERS]
    return [(comparer, entries) for comparer, entries in found if entries]


def same_size(rows: Sequence[Row]) -> list[Comparison]:
    """Layers on native points against voxels over maps with as many triplets."""
    return compare(SAME_SIZE, rows, [present(row) for row in rows])


def places_of(peers: Rows) -> dict[str, dict[LayerShape, list[str]]]:
    """By workload and layer, the kinds of rows that the peers have."""
    places: dict[str, dict[LayerShape, list[str]]] = {}
    for kind, workload, _, *shape in best_of_peers(LAYERS, peers):
        layer = LayerShape(*map(int, (shape[1], shape[2], shape[0], shape[3])))  # type: ignore[arg-type]
        kinds = places.setdefault(str(workload), {}).setdefault(layer, [])
        if kind not in kinds:
            kinds.append(str(kind))
    return places


def map_of(engine: str, variant: str) -> str:
    """Setting of the map that a peer's layer of a setting reads, as in the rows of maps.

    Spira's dataflows 0 to 2 have the names of their maps; 3 and above are hybrids, whose map was
    timed with the layer only. TorchSparse++ names map and product in one, as in
    ``hashmap/IG-sort2/bw3``; only its sorted products read the sorted map. The split masks of
    spconv need the map of a single mask at least.
    """
    if engine == "torchsparse":
        mode, product = variant.partition("/")[::2]
        if product.startswith("IG-sort") and mode == "hashmap_on_the_fly":
            return f"{mode}+sort3"
        return mode
    return {"MaskSplitImplicitGemm": "MaskImplicitGemm"}.get(variant, variant)


def _workload(row: Row) -> str:
    return row.workload.removesuffix(GENERATED_MARK)


def _map_places(row: Row) -> list[Place]:
    if row.what != "map" or row.params or None in (row.product, row.k, row.stride):
        return []
    products = (row.product, f"{BAR[0]} (bar)") if row.product == BAR[0] else (row.product,)
    return [(product, _workload(row), row.k, row.stride) for product in products]


def _peer_maps(peers: Rows) -> Iterator[tuple[Place, Best]]:
    for row in peers:
        setting = str(row.get("engine")), str(row.get("variant"))
        product = DELIVERS.get(setting)
        if row.get("what") != "map" or product is None:
            continue
        best = Best(" ".join(setting), row.get("gpu_ms"), row.get("wall_ms"))
        for kind in (product, *([f"{BAR[0]} (bar)"] if setting == BAR[1:] else ())):
            yield (kind, row["workload"], row["k"], row["stride"]), best


def _layer_places(row: Row) -> list[Place]:
    if row.what not in KINDS or row.params or row.dtype is None:
        return []
    where = row.what, _workload(row), row.dtype
    return [(*where, row.k or 0, row.c_in or 0, row.c_out or 0, row.stride or 1)]


def _peer_layers(peers: Rows) -> Iterator[tuple[Place, Best]]:
    """With a map: the time from start to end, or the map's and the call's added up."""
    maps = {
        (row["workload"], row["k"], row.get("stride", 1), row["engine"], row["variant"]): _least(
            row, ("gpu_ms", "wall_ms")
        )
        for row in peers
        if row.get("what") == "map" and "variant" in row
    }
    for row in peers:
        if row.get("what") not in ("layer", "train") or row.get("dtype") not in DTYPES:
            continue
        if "k" not in row or "variant" not in row:
            continue
        stride = row.get("stride", 1) or 1
        alone = _least(row, ("gpu_ms", "wall_ms", "gpu_busy_ms"))
        own_map = map_of(row["engine"], row["variant"])
        built = maps.get((row["workload"], row["k"], stride, row["engine"], own_map), math.inf)
        whole = min(_least(row, ("with_map_wall_ms", "with_map_busy_ms")), built + alone)
        where = row["workload"], DTYPES[row["dtype"]], row["k"], row["c_in"], row["c_out"], stride
        name = f"{row['engine']} {row['variant']}"
        yield (row["what"], *where), Best(name, alone, row.get("wall_ms"))
        yield (f"map+{row['what']}", *where), Best(name, whole, row.get("with_map_wall_ms"))


def _least(row: Mapping[str, Any], names: Sequence[str]) -> float:
    return min((float(row[name]) for name in names if row.get(name) is not None), default=math.inf)


#: Of forward alone: the kernel sizes and channels of a group, and its aim.
_FORWARD: tuple[tuple[str, Callable[[int, int], bool], float | None], ...] = (
    ("K = 3, C <= 32", lambda k, c: k == 3 and c <= 32, 1.6),
    ("K = 3, C 33-128", lambda k, c: k == 3 and 32 < c <= 128, 1.4),
    ("K = 3, C > 128", lambda k, c: k == 3 and c > 128, 1.2),
    ("K = 5", lambda k, c: k == 5, 3.0),
    ("other kernels", lambda k, c: True, None),
)


def _layer_aim(place: Place, _: str) -> Aim:
    kind, _workload, dtype, k, c_in, c_out, _stride = place
    if kind != "layer":
        return Aim(f"{kind}, {dtype}: all", 1.5)
    size, channels = int(k or 0), max(int(c_in or 0), int(c_out or 0))
    about, aim = next((name, aim) for name, holds, aim in _FORWARD if holds(size, channels))
    return Aim(f"{kind}, {dtype}: {about}", aim)


#: Settings of rows of networks that do what the peers' do: from shuffled cells, or from points.
_PLAIN = {"mode", "checked_on", "points", "equals_eager"}


def _network_places(row: Row) -> list[Place]:
    said = row.params or {}
    plain = said.get("mode") in ("infer", "device") and set(said) <= _PLAIN
    if row.what != "network" or not plain or row.wall_ms is None:
        return []
    return [(_workload(row), row.model, row.dtype)]


def _peer_networks(peers: Rows) -> Iterator[tuple[Place, Best]]:
    for row in peers:
        variant = str(row.get("variant", ""))
        if row.get("what") != "network" or any(words in variant for words in OTHER_WORK):
            continue
        if row.get("wall_ms") is not None and row.get("dtype") in DTYPES:
            best = Best(f"{row['engine']} {variant}", None, float(row["wall_ms"]))
            yield (row["workload"], row["model"], DTYPES[row["dtype"]]), best


def _native_places(row: Row) -> list[Place]:
    wanted = row.engine in SAME_AS_OFFICIAL and row.figure in ("native_layers", "native_triplets")
    other = row.what == "radius" and row.product != OFFICIAL_PRODUCT
    if not wanted or other or row.wall_ms is None:
        return []
    return [(row.what, row.workload, row.k, row.c_in, row.c_out, row.dtype)]


def _official(peers: Rows) -> Iterator[tuple[Place, Best]]:
    for row in peers:
        if row.get("engine") == OFFICIAL:
            layer = row.get("k"), row.get("c_in"), row.get("c_out")
            dtype = DTYPES.get(str(row.get("dtype")))
            best = Best(OFFICIAL, row.get("gpu_ms"), row.get("wall_ms"))
            yield (row["what"], row["workload"], *layer, dtype), best


def _native_aim(place: Place, engine: str) -> Aim:
    aims = {"radius": 1.5, "train": 2.0} if engine == "native" else {}
    return Aim(f"{place[0]}, {engine}", aims.get(str(place[0])), each=True)


def _same_size_places(row: Row, engine: str = "voxel") -> list[Place]:
    if row.figure != "native_same_t" or row.wall_ms is None or row.engine != engine:
        return []
    return [(str((row.params or {})["cloud"]), row.what, row.c_in, row.c_out)]


def _native_of_same_size(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Place, Best]]:
    runs: dict[Place, list[Row]] = {}
    for row in (Row(**values) for values in rows):
        for place in _same_size_places(row, "native"):
            runs.setdefault(place, []).append(row)
    yield from ((place, Best.of("native", own)) for place, own in runs.items())


MAPS = Comparer(
    "ours on {ours} against the best peer on {peers}",
    f"{_PEER_RATIO} in GPU time",
    ("product", "workload", "K", "stride"),
    _map_places,
    _peer_maps,
    lambda place, _: Aim(str(place[0])),
    order=lambda place: (place[0], place[1:]),
)
LAYERS = Comparer(
    "layers: ours on {ours} against the best peer on {peers}",
    _PEER_RATIO,
    ("what", "workload", "dtype", "K", "C_in", "C_out", "stride"),
    _layer_places,
    _peer_layers,
    _layer_aim,
    order=lambda place: (KINDS.index(str(place[0])), place[2], place[1], place[3:]),
)
NETWORKS = Comparer(
    "networks: ours on {ours} against the best peer on {peers}",
    f"median time from start to end, shuffled cells to output; {_PEER_RATIO}",
    ("workload", "network", "dtype"),
    _network_places,
    _peer_networks,
    lambda place, _: Aim(str(place[0]), 1.5, each=True),
    by="wall_ms",
    order=lambda place: place,
)
NATIVE = Comparer(
    f"native points on {{ours}} against {OFFICIAL} on {{peers}}",
    "ratios are official / ours, by wall time; radius: triplets and all layouts of forward and "
    "backward",
    ("what", "cloud", "K", "C_in", "C_out", "dtype"),
    _native_places,
    _official,
    _native_aim,
    by="wall_ms",
    every=True,
)
COMPARERS = (MAPS, LAYERS, NETWORKS, NATIVE)
#: On both sides rows of ours: ``ours`` is the layer on voxels, the peer that on native points.
SAME_SIZE = Comparer(
    "native points against voxels with as many triplets on {ours}",
    "ratios are native / voxel, by GPU time",
    ("cloud", "what", "C_in", "C_out"),
    _same_size_places,
    _native_of_same_size,
    lambda place, _: Aim(str(place[0])),
    by="time",
)
