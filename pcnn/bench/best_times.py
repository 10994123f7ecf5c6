"""Our best times against other engines' at the same places, in one table.

A place is a key of words and numbers: a workload and all that decides how much work there is. Of
several runs and engines at a place the smallest times count. A peer's time is the smallest that its
file tells. Ours is the GPU time, or the time from start to end where the call waits for the device.
*No slower* means within 5 % or 2 microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from pcnn.bench.rows import Row

SLACK, SLACK_MS = 1.05, 0.002

#: Values of a comparer's columns; None where one does not apply.
Place = tuple[str | int | None, ...]


@dataclass(frozen=True)
class Best:
    """The best time at a place.

    Args:
        name: engine and setting.
        gpu_ms: without launch gaps; time in kernels where the call waits for the device, ``None``
            where it was not measured.
        wall_ms: from start to end.
        row: of ours, the quickest.
    """

    name: str
    gpu_ms: float | None
    wall_ms: float | None
    row: Row | None = field(default=None, compare=False)

    @classmethod
    def of(cls, name: str, runs: Sequence[Row]) -> Best:
        """The smallest times of several runs of one thing."""
        gpu = [row.gpu_ms for row in runs if row.gpu_ms is not None]
        if not gpu:
            gpu = [row.gpu_busy_ms for row in runs if row.gpu_busy_ms is not None]
        wall = [row.wall_ms for row in runs if row.wall_ms is not None]
        quickest = min(runs, key=lambda row: math.inf if row.wall_ms is None else row.wall_ms)
        return cls(name, min(gpu, default=None), min(wall, default=None), quickest)

    @property
    def least(self) -> float:
        """The smaller of the two."""
        return min((t for t in (self.gpu_ms, self.wall_ms) if t is not None), default=math.inf)

    @property
    def time(self) -> float:
        """GPU time [ms]; from start to end where there is no other."""
        return self.least if self.gpu_ms is None else self.gpu_ms


@dataclass(frozen=True)
class Aim:
    """A group of places, and the ratio peer / ours that it aims at.

    Args:
        about: what the group is.
        ratio: the aim; ``None``: reported only.
        each: whether every place is held to it, or the geometric mean.
    """

    about: str
    ratio: float | None = None
    each: bool = False


@dataclass(frozen=True)
class Comparer:
    """The two sides of a comparison, and their names in the table.

    Args:
        title: of the table; it holds ``{ours}`` and ``{peers}``, the devices.
        caption: below it.
        columns: names of the values of a place.
        ours: places of a row of ours; none: it is not compared.
        theirs: times of the peers with their places, from the rows of their files.
        aim: group that a place and our engine belong to.
        by: property of `Best` that the peers' times are held against: ``least``, ``time``, or
            ``wall_ms`` of both sides.
        every: whether every engine of ours is compared, not the quickest alone.
        order: sorts the places; ``None``: as the peers have them.
    """

    title: str
    caption: str
    columns: tuple[str, ...]
    ours: Callable[[Row], Sequence[Place]]
    theirs: Callable[[Sequence[Mapping[str, Any]]], Iterable[tuple[Place, Best]]]
    aim: Callable[[Place, str], Aim]
    by: str = "least"
    every: bool = False
    order: Callable[[Place], Any] | None = None


@dataclass(frozen=True)
class Comparison:
    """Ours and the best peer at one place.

    Args:
        place: key of both.
        ours: our best.
        peer: the best peer.
        aim: group of the place.
        by: see `Comparer`.
    """

    place: Place
    ours: Best
    peer: Best
    aim: Aim
    by: str = "least"

    @property
    def times(self) -> tuple[float, float]:
        """Ours and the peer's time that count."""
        ours = self.ours.wall_ms if self.by == "wall_ms" else self.ours.time
        peer = getattr(self.peer, self.by)
        return (math.inf if ours is None else ours), (math.nan if peer is None else peer)

    @property
    def ratio(self) -> float:
        """The peer's time over ours."""
        return self.times[1] / self.times[0]

    @property
    def wall_ratio(self) -> float | None:
        """The peer's time from start to end over ours."""
        if self.ours.wall_ms is None or self.peer.wall_ms is None:
            return None
        return self.peer.wall_ms / self.ours.wall_ms

    @property
    def met(self) -> bool:
        """True if the place meets an aim that every place of its group has."""
        return not self.aim.each or self.aim.ratio is None or self.ratio >= self.aim.ratio

    @property
    def no_slower(self) -> bool:
        """True if our time is within 5 % or 2 us of the peer's."""
        return no_slower(*self.times)


def no_slower(ours: float, theirs: float) -> bool:
    """True if a time is within 5 % or 2 us of another [ms]."""
    return ours <= max(theirs * SLACK, theirs + SLACK_MS)


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers; NaN of none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def best_of_ours(comparer: Comparer, rows: Iterable[Row]) -> dict[Place, list[Best]]:
    """Our quickest engine at every place, or every engine; of several runs the smallest times."""
    runs: dict[tuple[Place, str], list[Row]] = {}
    for row in rows:
        for place in comparer.ours(row) if row.cache != "cold" else ():
            runs.setdefault((place, row.engine), []).append(row)
    best: dict[Place, list[Best]] = {}
    for (place, engine), own in runs.items():
        best.setdefault(place, []).append(Best.of(engine, own))
    if comparer.every:
        return best
    key = "wall_ms" if comparer.by == "wall_ms" else "least"
    return {place: [min(found, key=lambda one: getattr(one, key))] for place, found in best.items()}


def best_of_peers(comparer: Comparer, rows: Sequence[Mapping[str, Any]]) -> dict[Place, Best]:
    """The best peer at every place."""
    best: dict[Place, Best] = {}
    for place, found in comparer.theirs(rows):
        if found.least < math.inf and (place not in best or found.least < best[place].least):
            best[place] = found
    return best


def compare(
    comparer: Comparer, ours: Iterable[Row], peers: Sequence[Mapping[str, Any]]
) -> list[Comparison]:
    """Ours against the best peer, at every place that both have."""
    mine, theirs = best_of_ours(comparer, ours), best_of_peers(comparer, peers)
    places = list(theirs) if comparer.order is None else sorted(theirs, key=comparer.order)
    return [
        Comparison(place, own, theirs[place], comparer.aim(place, own.name), comparer.by)
        for place in places
        for own in mine.get(place, ())
    ]


#: Columns of words, and all columns after those of the place.
_WORDS = ("ours", "peer", "aim", "no slower")
_TITLES = (
    *("ours", "T", "GPU ms", "wall ms", "x floor", "min", "busy ms", "launches", "MB"),
    *("peer", "peer GPU ms", "peer wall ms", "ratio", "wall ratio", "aim", "no slower"),
)


def comparison_table(
    comparer: Comparer, comparisons: Sequence[Comparison], ours_on: str, peers_on: str
) -> Table:
    """Table for a person, group by group, each with its geometric mean and its aim."""
    lines: list[dict[str, str]] = []
    for aim in dict.fromkeys(entry.aim for entry in comparisons):
        own = [entry for entry in comparisons if entry.aim == aim]
        lines += [_cells(entry, comparer.columns) for entry in own]
        lines.append(_mean(aim, own, comparer.columns))
    drawn = Table(
        title=comparer.title.format(ours=ours_on, peers=peers_on), caption=comparer.caption
    )
    kept = [name for name in (*comparer.columns, *_TITLES) if any(line.get(name) for line in lines)]
    for name in kept:
        drawn.add_column(name, justify="left" if name in (*comparer.columns, *_WORDS) else "right")
    for line in lines:
        drawn.add_row(*(line.get(name, "") for name in kept), end_section="end" in line)
    return drawn


def _cells(entry: Comparison, columns: Sequence[str]) -> dict[str, str]:
    ours, peer = entry.ours, entry.peer
    cells = {name: str(v) for name, v in zip(columns, entry.place, strict=True) if v is not None}
    cells |= {"ours": ours.name, "GPU ms": _number(ours.gpu_ms), "wall ms": _number(ours.wall_ms)}
    row = ours.row
    if row is not None:
        cells |= {"T": str(row.triplets or ""), "launches": str(row.launches or "")}
        cells |= {"min": _number(row.min_ms), "busy ms": _number(row.gpu_busy_ms)}
        cells["MB"] = _number(row.memory_mb, 1)
        if row.floor_ms and not row.what.startswith("map"):
            cells["x floor"] = f"{ours.time / row.floor_ms:.1f}"
    cells |= {"peer": peer.name, "peer GPU ms": _number(peer.gpu_ms)}
    cells |= {"peer wall ms": _number(peer.wall_ms), "ratio": f"{entry.ratio:.2f}"}
    cells |= {"wall ratio": _number(entry.wall_ratio, 2)}
    if entry.aim.each and entry.aim.ratio is not None:
        cells["aim"] = f"{entry.aim.ratio:g} {'met' if entry.met else 'MISSED'}"
    return cells | {"no slower": "yes" if entry.no_slower else "NO"}


def _mean(aim: Aim, own: Sequence[Comparison], columns: Sequence[str]) -> dict[str, str]:
    mean = geometric_mean([entry.ratio for entry in own])
    walls = [entry.wall_ratio for entry in own if entry.wall_ratio is not None]
    goal = ""
    if aim.ratio is not None and not aim.each:
        goal = f"aim {aim.ratio:.1f}: {'met' if mean >= aim.ratio else 'MISSED'}"
    return {
        columns[0]: aim.about,
        columns[1]: f"geometric mean of {len(own)}",
        "ratio": f"{mean:.2f}",
        "wall ratio": f"{geometric_mean(walls):.2f}" if walls else "",
        "aim": goal,
        "no slower": f"{sum(entry.no_slower for entry in own)} of {len(own)}",
        "end": "",
    }


def _number(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}f}"
