"""Our networks against other engines', from shuffled cells to the output.

Times are medians from start to end; of several runs and settings the smallest. Peers that do other
work are left out: sites that a larger kernel than its stride adds make a different network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from pcnn.bench.layers.compare import DTYPES
from pcnn.bench.rows import Row
from pcnn.bench.scenes import GENERATED_MARK
from pcnn.bench.versus import Best, Versus, geometric_mean

#: In the settings of peers that do other work.
OTHER_WORK = ("NOT the same work", "keeps more outputs")
#: The ratio peer / ours that is aimed at, for every network and scene.
AIM = 1.5

#: workload, network, dtype.
Place = tuple[str, str, str]


@dataclass(frozen=True)
class Comparison(Versus):
    """Ours and the best peer at one place.

    Args:
        place: workload, network, dtype.
        row: the quickest row of ours.
    """

    place: Place
    row: Row


def compare(ours: Iterable[Row], peers: Iterable[Mapping[str, Any]]) -> list[Comparison]:
    """Ours against the best peer, wherever both have inference from cells.

    Args:
        ours: rows of the suite, of one run or several.
        peers: rows of `pcnn.bench.peers.Peers`.
    """
    theirs: dict[Place, Best] = {}
    for peer in peers:
        variant = str(peer.get("variant", ""))
        if peer.get("what") != "network" or any(words in variant for words in OTHER_WORK):
            continue
        if peer.get("wall_ms") is None or peer.get("dtype") not in DTYPES:
            continue
        place = peer["workload"], peer["model"], DTYPES[peer["dtype"]]
        best = Best(f"{peer['engine']} {variant}", None, float(peer["wall_ms"]))
        if place not in theirs or best.least < theirs[place].least:
            theirs[place] = best
    mine: dict[Place, Row] = {}
    for row in ours:
        plain = set(row.params or {}) <= {"mode", "checked_on"}
        if row.what != "network" or not plain or (row.params or {}).get("mode") != "infer":
            continue
        if row.wall_ms is None or row.cache == "cold":
            continue
        place = row.workload.removesuffix(GENERATED_MARK), str(row.model), str(row.dtype)
        if place not in mine or row.wall_ms < (mine[place].wall_ms or 0.0):
            mine[place] = row
    return [
        Comparison(Best(row.engine, None, row.wall_ms), theirs[place], place, row)
        for place, row in sorted(mine.items())
        if place in theirs
    ]


def comparison_table(comparisons: Sequence[Comparison], ours_on: str, peers_on: str) -> Table:
    """Table for a person, with the geometric mean of every scene."""
    drawn = Table(
        title=f"networks: ours on {ours_on} against the best peer on {peers_on}",
        caption="median time from start to end, shuffled cells to output. Ratios are peer / ours; "
        f"the aim is {AIM:.1f}; no slower: within 5 % or 2 us",
    )
    for title in ("workload", "network", "dtype", "ours"):
        drawn.add_column(title)
    for title in ("ms", "min", "busy ms", "launches", "MB"):
        drawn.add_column(title, justify="right")
    drawn.add_column("peer")
    for title in ("ms", "ratio", "aim", "no slower"):
        drawn.add_column(title, justify="right")
    for workload in dict.fromkeys(entry.place[0] for entry in comparisons):
        own = [entry for entry in comparisons if entry.place[0] == workload]
        for entry in own:
            _, model, dtype = entry.place
            drawn.add_row(
                workload,
                model,
                dtype,
                entry.ours.name,
                f"{entry.ours.least:.3f}",
                *(_number(n) for n in (entry.row.min_ms, entry.row.gpu_busy_ms)),
                "" if entry.row.launches is None else str(entry.row.launches),
                _number(entry.row.memory_mb),
                entry.peer.name,
                f"{entry.peer.least:.3f}",
                f"{entry.ratio:.2f}",
                "met" if entry.ratio >= AIM else "MISSED",
                "yes" if entry.no_slower else "NO",
            )
        drawn.add_row(
            workload,
            f"geometric mean of {len(own)}",
            *[""] * 9,
            f"{geometric_mean([entry.ratio for entry in own]):.2f}",
            "",
            f"{sum(entry.no_slower for entry in own)} of {len(own)}",
            end_section=True,
        )
    return drawn


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
