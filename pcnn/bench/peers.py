"""Our maps against other engines' on the same workloads.

A peer's time is the smaller of its GPU and its wall time: with host syncs the GPU time behind a
spin can exceed the wall time. Ours is both, each compared. Of several runs the smallest counts.
*No slower* means within 5 % or 2 microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from pcnn.bench.rows import Row
from pcnn.bench.scenes import GENERATED_MARK
from pcnn.bench.versus import Best, Versus, geometric_mean

#: What a peer's setting delivers, in the names of `pcnn.bench.mapping.products`. Spira's dataflow 0
#: reads a neighbour table, 1 the triplets by slot, 2 both; TorchSparse++ has the table on the fly
#: and sorts it for split masks; spconv's implicit GEMM and FlexGEMM's masked one sort by mask too.
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

#: workload, K, stride, product.
Place = tuple[str, int, int, str]


@dataclass(frozen=True)
class Comparison(Versus):
    """Ours and the best peer at one place.

    Args:
        place: workload, K, stride, product; a product ``ready (bar)`` is held to `BAR`.
    """

    place: Place


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
        content = json.loads(path.read_text())
        return Peers(str(content["header"]["device"]), [dict(row) for row in content["rows"]])
    except (OSError, json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a file of peers' times ({error})") from error


def compare(ours: Sequence[Row], peers: Iterable[Mapping[str, Any]]) -> list[Comparison]:
    """Ours against the best peer, at every place that both have.

    Args:
        ours: rows of maps on a warm cache, of one run or several.
        peers: rows of `Peers`.
    """
    mine = best_of_ours(ours)
    theirs: dict[Place, Best] = {}
    for row in peers:
        product = DELIVERS.get((str(row.get("engine")), str(row.get("variant"))))
        if row.get("what") != "map" or product is None:
            continue
        name = f"{row['engine']} {row['variant']}"
        best = Best(name, row.get("gpu_ms"), row.get("wall_ms"))
        products = [product]
        if (row["engine"], row["variant"]) == BAR[1:]:
            products.append(f"{BAR[0]} (bar)")
        for kind in products:
            place = row["workload"], row["k"], row["stride"], kind
            if place not in theirs or best.least < theirs[place].least:
                theirs[place] = best
    comparisons = []
    for place, best in theirs.items():
        own = mine.get((*place[:3], place[3].removesuffix(" (bar)")))
        if own is not None:
            comparisons.append(Comparison(own, best, place))
    return sorted(comparisons, key=lambda entry: (entry.place[3], entry.place))


def best_of_ours(rows: Iterable[Row]) -> dict[Place, Best]:
    """Our best builder at every place; of several runs of one builder the smallest times count."""
    runs: dict[tuple[Place, str], list[Row]] = {}
    for row in rows:
        if row.what != "map" or row.params or row.cache == "cold":
            continue
        if row.product is None or row.k is None or row.stride is None:
            continue
        place = (row.workload.removesuffix(GENERATED_MARK), row.k, row.stride, row.product)
        runs.setdefault((place, row.engine), []).append(row)
    best: dict[Place, Best] = {}
    for (place, engine), repeats in runs.items():
        found = Best.of(engine, repeats)
        if place not in best or found.least < best[place].least:
            best[place] = found
    return best


def comparison_table(comparisons: Sequence[Comparison], ours_on: str, peers_on: str) -> Table:
    """Table for a person, with the geometric mean of every product.

    Args:
        comparisons: as `compare` returns them.
        ours_on: device of our times.
        peers_on: device of the peers'.
    """
    drawn = Table(
        title=f"ours on {ours_on} against the best peer on {peers_on}",
        caption="ratios are peer / ours: above 1 we are quicker. Peer: the smaller of GPU and "
        "wall time; no slower: within 5 % or 2 us in GPU time",
    )
    for title in ("product", "workload"):
        drawn.add_column(title)
    for title in ("K", "stride"):
        drawn.add_column(title, justify="right")
    for title in ("ours", "GPU ms", "wall ms", "peer", "GPU ms", "wall ms", "ratio", "wall ratio"):
        drawn.add_column(title, justify="left" if title in ("ours", "peer") else "right")
    drawn.add_column("no slower")
    for product in dict.fromkeys(entry.place[3] for entry in comparisons):
        own = [entry for entry in comparisons if entry.place[3] == product]
        for entry in own:
            workload, k, stride, _ = entry.place
            drawn.add_row(
                product,
                workload,
                str(k),
                str(stride),
                *_cells(entry.ours),
                *_cells(entry.peer),
                f"{entry.ratio:.2f}",
                _number(entry.wall_ratio, 2),
                "yes" if entry.no_slower else "NO",
            )
        walls = [entry.wall_ratio for entry in own if entry.wall_ratio is not None]
        drawn.add_row(
            product,
            f"geometric mean of {len(own)}",
            *[""] * 8,
            f"{geometric_mean([entry.ratio for entry in own]):.2f}",
            f"{geometric_mean(walls):.2f}",
            f"{sum(entry.no_slower for entry in own)} of {len(own)}",
            end_section=True,
        )
    return drawn


def _cells(best: Best) -> tuple[str, str, str]:
    return best.name, _number(best.gpu_ms, 4), _number(best.wall_ms, 4)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
