"""Our layers against other engines', layer by layer, with the geometric means that are aimed at.

A peer's time is the smallest that its file tells: of the call on the GPU, from start to end, and
the sum of its kernels. With a map it is the time from start to end, or the map's and the call's
added up, whichever is smaller. Ours is the GPU time, or the time from start to end where the call
waits for the device; of several runs the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from rich.table import Table

from pcnn.bench.layers.setting import KINDS, WITH_MAP, LayerShape
from pcnn.bench.rows import Row
from pcnn.bench.scenes import GENERATED_MARK
from pcnn.bench.versus import Best, Versus, geometric_mean

#: Dtypes in the peers' files, and ours.
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}

#: workload, dtype, layer, kind.
Place = tuple[str, str, LayerShape, str]


@dataclass(frozen=True)
class Aim:
    """A group of layers, and the ratio peer / ours that its geometric mean aims at.

    Args:
        kind: of rows.
        about: what the group is.
        holds: whether a layer belongs to it.
        ratio: the aim; ``None``: reported only.
    """

    kind: str
    about: str
    holds: Callable[[LayerShape], bool]
    ratio: float | None


def _k3(low: int, high: int) -> Callable[[LayerShape], bool]:
    return lambda shape: shape.size == 3 and low <= max(shape.c_in, shape.c_out) <= high


AIMS = (
    Aim("layer", "K = 3, C <= 32", _k3(1, 32), 1.6),
    Aim("layer", "K = 3, C 33-128", _k3(33, 128), 1.4),
    Aim("layer", "K = 3, C > 128", _k3(129, 1 << 30), 1.2),
    Aim("layer", "K = 5", lambda shape: shape.size == 5, 3.0),
    Aim("layer", "other kernels", lambda shape: shape.size not in (3, 5), None),
    Aim("map+layer", "all", lambda _: True, 1.5),
    Aim("train", "all", lambda _: True, 1.5),
    Aim("map+train", "all", lambda _: True, 1.5),
)


@dataclass(frozen=True)
class Comparison(Versus):
    """Ours and the best peer at one place.

    Args:
        place: workload, dtype, layer, kind.
        floor_ms: lower bound of the time, where it is known.
    """

    place: Place
    floor_ms: float | None


def compare(ours: Sequence[Row], peers: Sequence[Mapping[str, Any]]) -> list[Comparison]:
    """Ours against the best peer, at every place that both have.

    Args:
        ours: rows of the suite, of one run or several, without settings of their own.
        peers: rows of `pcnn.bench.peers.Peers`.
    """
    theirs = best_of_peers(peers)
    found = []
    for place, (best, floor) in best_of_ours(ours).items():
        if place in theirs:
            found.append(Comparison(best, theirs[place], place, floor))
    return sorted(found, key=_order)


def _order(entry: Comparison) -> tuple[object, ...]:
    workload, dtype, shape, kind = entry.place
    return KINDS.index(kind), dtype, workload, shape.size, shape.c_in, shape.c_out, shape.stride


def best_of_ours(rows: Iterable[Row]) -> dict[Place, tuple[Best, float | None]]:
    """Our best engine at every place, and the floor; of several runs the smallest times count."""
    runs: dict[tuple[Place, str], list[Row]] = {}
    for row in rows:
        if row.what not in KINDS or row.params or row.cache == "cold" or row.dtype is None:
            continue
        shape = LayerShape(row.c_in or 0, row.c_out or 0, row.k or 0, row.stride or 1)
        place = row.workload.removesuffix(GENERATED_MARK), row.dtype, shape, row.what
        runs.setdefault((place, row.engine), []).append(row)
    best: dict[Place, tuple[Best, float | None]] = {}
    for (place, engine), own in runs.items():
        found = Best.of(engine, own)
        if place not in best or found.least < best[place][0].least:
            best[place] = found, own[0].floor_ms
    return best


def best_of_peers(peers: Sequence[Mapping[str, Any]]) -> dict[Place, Best]:
    """The best peer at every place, of maps and layers together too."""
    maps = {
        (row["workload"], row["k"], row.get("stride", 1), row["engine"], row["variant"]): _least(
            row, ("gpu_ms", "wall_ms")
        )
        for row in peers
        if row.get("what") == "map" and "variant" in row
    }
    best: dict[Place, Best] = {}
    for row in peers:
        if row.get("what") not in ("layer", "train") or row.get("dtype") not in DTYPES:
            continue
        if "k" not in row or "variant" not in row:
            continue
        shape = LayerShape(row["c_in"], row["c_out"], row["k"], row.get("stride", 1) or 1)
        name = f"{row['engine']} {row['variant']}"
        alone = _least(row, ("gpu_ms", "wall_ms", "gpu_busy_ms"))
        own_map = map_of(row["engine"], row["variant"])
        built = maps.get((row["workload"], shape.size, shape.stride, row["engine"], own_map))
        whole = _least(row, ("with_map_wall_ms", "with_map_busy_ms"))
        if built is not None:
            whole = min(whole, built + alone)
        where = row["workload"], DTYPES[row["dtype"]], shape
        for kind, time, wall in (
            (row["what"], alone, row.get("wall_ms")),
            (f"map+{row['what']}", whole, row.get("with_map_wall_ms")),
        ):
            place = (*where, kind)
            if time < math.inf and (place not in best or time < best[place].least):
                best[place] = Best(name, time, wall)
    return best


def map_of(engine: str, variant: str) -> str:
    """Setting of the map that a peer's layer of a setting reads, as in the rows of maps.

    Spira's dataflows 0 to 2 are named alike; 3 and above are hybrids, whose map was timed with the
    layer only. TorchSparse++ names map and product in one (``hashmap/IG-sort2/bw3``): only its
    sorted products read the sorted map. The split masks of spconv need the map of a single mask at
    least.
    """
    if engine == "torchsparse":
        mode, product = variant.partition("/")[::2]
        if product.startswith("IG-sort") and mode == "hashmap_on_the_fly":
            return f"{mode}+sort3"
        return mode
    return {"MaskSplitImplicitGemm": "MaskImplicitGemm"}.get(variant, variant)


def _least(row: Mapping[str, Any], names: Sequence[str]) -> float:
    return min((float(row[name]) for name in names if row.get(name) is not None), default=math.inf)


def places_of(peers: Sequence[Mapping[str, Any]]) -> dict[str, dict[LayerShape, list[str]]]:
    """By workload and layer, the kinds of rows that the peers have, for `Setting.places`."""
    places: dict[str, dict[LayerShape, list[str]]] = {}
    for workload, _, shape, kind in best_of_peers(peers):
        kinds = places.setdefault(workload, {}).setdefault(shape, [])
        if kind not in kinds:
            kinds.append(kind)
    return places


def comparison_table(comparisons: Sequence[Comparison], ours_on: str, peers_on: str) -> Table:
    """Table for a person, group by group, each with its geometric mean and its aim."""
    drawn = Table(
        title=f"layers: ours on {ours_on} against the best peer on {peers_on}",
        caption="ratios are peer / ours: above 1 we are quicker. Peer: the smallest time it has; "
        "no slower: within 5 % or 2 us",
    )
    for title in ("what", "workload", "layer", "dtype"):
        drawn.add_column(title)
    for title in ("ours", "GPU ms", "wall ms", "x floor", "peer", "ms", "wall ms"):
        drawn.add_column(title, justify="left" if title in ("ours", "peer") else "right")
    for title in ("ratio", "wall ratio", "no slower"):
        drawn.add_column(title, justify="right")
    dtypes = list(dict.fromkeys(entry.place[1] for entry in comparisons))
    for aim, dtype in product(AIMS, dtypes):
        wanted = aim.kind, dtype
        own = [c for c in comparisons if (c.place[3], c.place[1]) == wanted]
        own = [c for c in own if aim.holds(c.place[2])]
        for entry in own:
            drawn.add_row(*_cells(entry))
        if not own:
            continue
        mean = geometric_mean([entry.ratio for entry in own])
        walls = [entry.wall_ratio for entry in own if entry.wall_ratio is not None]
        goal = ""
        if aim.ratio is not None:
            goal = f"aim {aim.ratio:.1f}: {'met' if mean >= aim.ratio else 'MISSED'}"
        drawn.add_row(
            aim.kind,
            f"geometric mean of {len(own)}",
            aim.about,
            dtype,
            goal,
            *[""] * 6,
            f"{mean:.2f}",
            f"{geometric_mean(walls):.2f}",
            f"{sum(entry.no_slower for entry in own)} of {len(own)}",
            end_section=True,
        )
    return drawn


def _cells(entry: Comparison) -> list[str]:
    workload, dtype, shape, kind = entry.place
    floor = None
    if entry.floor_ms and kind not in WITH_MAP:
        floor = entry.time / entry.floor_ms
    stride = f" stride {shape.stride}" if shape.stride > 1 else ""
    return [
        kind,
        workload,
        f"{shape.c_in} -> {shape.c_out} K{shape.size}{stride}",
        dtype,
        entry.ours.name,
        _number(entry.ours.gpu_ms, 4),
        _number(entry.ours.wall_ms, 4),
        _number(floor, 1),
        entry.peer.name,
        _number(entry.peer.gpu_ms, 4),
        _number(entry.peer.wall_ms, 4),
        f"{entry.ratio:.2f}",
        _number(entry.wall_ratio, 2),
        "yes" if entry.no_slower else "NO",
    ]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
