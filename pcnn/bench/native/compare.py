"""Native points against the official code of PointCNN++ on the same clouds, by wall time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from pcnn.bench.rows import Row
from pcnn.bench.versus import Best, Versus, geometric_mean

#: Name of the official code in files of peers' times.
OFFICIAL = "pointelligence"
#: Lines of ours that compute the same thing.
OURS = ("native", "pointcnnpp")
#: By kind of row, how many times quicker ours shall be.
AIMS = {"radius": 1.5, "train": 2.0}
#: The official map is held against ours with all layouts that forward and backward read.
PRODUCT = "train"
DTYPES = {"fp16": "float16"}

#: Cloud, kind of row, K, channels in and out, line of ours.
Place = tuple[str, str, int | None, int | None, int | None, str]


@dataclass(frozen=True)
class Comparison(Versus):
    """Ours and the official code at one place.

    Args:
        place: cloud, kind of row, K, channels, and the line of ours.
    """

    place: Place

    @property
    def aim(self) -> float | None:
        """How many times quicker ours shall be; ``None`` where nothing is asked."""
        return AIMS.get(self.place[1]) if self.place[-1] == "native" else None

    @property
    def met(self) -> bool:
        """Whether ours is so much quicker, by wall time."""
        return self.aim is None or (self.wall_ratio or 0.0) >= self.aim


def compare(ours: Sequence[Row], peers: Iterable[Mapping[str, Any]]) -> list[Comparison]:
    """Ours against the official code, at every place that both have; of runs the least counts.

    Args:
        ours: rows of the suite ``native``.
        peers: rows of a file of peers' times.
    """
    mine: dict[Place, list[Row]] = {}
    for row in ours:
        if row.engine in OURS and row.figure in ("native_layers", "native_triplets"):
            if row.wall_ms is None or (row.what == "radius" and row.product != PRODUCT):
                continue
            key = row.workload, row.what, row.k, row.c_in, row.c_out, row.engine
            mine.setdefault(key, []).append(row)
    found = []
    for peer in peers:
        if peer.get("engine") != OFFICIAL:
            continue
        at = peer["workload"], peer["what"], peer.get("k"), peer.get("c_in"), peer.get("c_out")
        dtype = DTYPES.get(str(peer.get("dtype")))
        for line in OURS:
            runs = [r for r in mine.get((*at, line), ()) if dtype in (None, r.dtype)]
            if runs:
                theirs = Best(OFFICIAL, peer.get("gpu_ms"), peer.get("wall_ms"))
                found.append(Comparison(Best.of(line, runs), theirs, (*at, line)))
    return found


@dataclass(frozen=True)
class SameSize:
    """A layer on native points and on voxels over maps with as many triplets.

    Args:
        cloud: whose parts they are.
        kind: of the rows.
        channels: in and out.
        triplets: of the native map.
        native: our times on native points.
        voxel: our times on voxels.
    """

    cloud: str
    kind: str
    channels: tuple[int | None, int | None]
    triplets: int | None
    native: Best
    voxel: Best

    @property
    def ratio(self) -> float:
        """Time on native points over that on voxels, on the device where it is known."""
        return Versus(self.native, self.voxel).time / Versus(self.voxel, self.native).time


def same_size(rows: Iterable[Row]) -> list[SameSize]:
    """Layers of ``native_same_t`` that both lines have; of several runs the least counts."""
    found: dict[tuple[str, str, int | None, int | None], dict[str, list[Row]]] = {}
    for row in rows:
        if row.figure == "native_same_t" and row.wall_ms is not None:
            cloud = str((row.params or {})["cloud"])
            lines = found.setdefault((cloud, row.what, row.c_in, row.c_out), {})
            lines.setdefault(row.engine, []).append(row)
    return [
        SameSize(
            cloud,
            kind,
            (c_in, c_out),
            lines["native"][0].triplets,
            *(Best.of(name, lines[name]) for name in ("native", "voxel")),
        )
        for (cloud, kind, c_in, c_out), lines in found.items()
        if {"native", "voxel"} <= set(lines)
    ]


def same_size_table(ratios: Sequence[SameSize], device: str) -> Table:
    """Table for a person.

    Args:
        ratios: as `same_size` returns them.
        device: where they were measured.
    """
    drawn = Table(
        title=f"native points against voxels with as many triplets on {device}",
        caption="ratios are native / voxel, by GPU time",
    )
    for title in ("cloud", "what", "layer"):
        drawn.add_column(title)
    for title in ("T", "native GPU ms", "wall ms", "voxel GPU ms", "wall ms", "ratio"):
        drawn.add_column(title, justify="right")
    for one in ratios:
        times = (one.native.gpu_ms, one.native.wall_ms, one.voxel.gpu_ms, one.voxel.wall_ms)
        layer = "{} -> {}".format(*one.channels)
        cells = ("" if time is None else f"{time:.3f}" for time in times)
        drawn.add_row(one.cloud, one.kind, layer, str(one.triplets), *cells, f"{one.ratio:.2f}")
    return drawn


def comparison_table(comparisons: Sequence[Comparison], ours_on: str, peers_on: str) -> Table:
    """Table for a person, with the geometric mean of every kind of row."""
    drawn = Table(
        title=f"native points on {ours_on} against {OFFICIAL} on {peers_on}",
        caption="ratios are official / ours, by wall time; radius: triplets and all layouts of "
        "forward and backward",
    )
    for title in ("what", "cloud", "line"):
        drawn.add_column(title)
    for title in ("K", "C_in", "C_out", "wall ms", "GPU ms", "official ms", "ratio", "aim"):
        drawn.add_column(title, justify="right")
    drawn.add_column("met")
    for what, line in dict.fromkeys((e.place[1], e.place[-1]) for e in comparisons):
        own = [e for e in comparisons if (e.place[1], e.place[-1]) == (what, line)]
        for entry in own:
            cloud, _, *numbers, _ = entry.place
            times = entry.ours.wall_ms, entry.ours.gpu_ms, entry.peer.wall_ms
            drawn.add_row(
                what,
                cloud,
                line,
                *("" if number is None else str(number) for number in numbers),
                *("" if time is None else f"{time:.3f}" for time in times),
                f"{entry.wall_ratio or 0.0:.2f}",
                "" if entry.aim is None else f"{entry.aim:g}",
                "" if entry.aim is None else "yes" if entry.met else "NO",
            )
        ratios = [entry.wall_ratio for entry in own if entry.wall_ratio is not None]
        mean = f"{geometric_mean(ratios):.2f}"
        drawn.add_row(
            what, f"geometric mean of {len(own)}", line, *[""] * 6, mean, end_section=True
        )
    return drawn
