"""Charts of result rows, described by the names of the fields that they are drawn over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import mean
from typing import Any

from pcnn.bench.appearance import AUTHORS, COLD
from pcnn.bench.best_times import Best, Comparer
from pcnn.bench.rows import Row

#: Rows of a file of other engines' times.
PeerRows = Sequence[Mapping[str, Any]]
#: Stands between a series and its largest x.
UP_TO = ", up to "
#: Label of times from start to end.
WALL = "wall time [ms]"
#: Label of times that were read off a trace.
BUSY = "time in kernels [ms]"
#: Stages of a map build, and what a chart calls them.
STAGES = {"prepare": "sort, pack, hash", "search": "search", "finish": "post-processing"}
#: Titles of kinds of rows and of modes of networks, on native points.
TITLES = {
    "layer": "forward",
    "backward": "backward",
    "train": "forward and backward",
    "map+layer": "inference: triplets and forward",
    "map+train": "training: triplets, forward and backward",
    "infer": "inference, from points",
    "forward": "forward, sites and maps there",
    "step": "forward and backward, sites and maps there",
}
#: Names of one code's settings in the files of recorded times: here Spira with wider keys.
_CODE = {"spira64": "spira"}
#: Kinds of rows whose map may wait for the host, between kernels that are timed one by one.
_WITH_MAPS = ("map+layer", "map+train")


@dataclass(frozen=True)
class Point:
    """One value.

    Args:
        x: voxels, or the label of a category.
        y: milliseconds or percent.
        hollow: a wall time among GPU times.
        floor: lower bound of ``y``, where it is known.
    """

    x: float | str
    y: float
    hollow: bool = False
    floor: float | None = None


@dataclass
class Panel:
    """One pair of axes.

    Args:
        title: kernel, workload or network.
        kind: ``lines`` over the number of voxels, ``points`` over categories, ``bars`` from zero,
            or ``stacked`` bars.
        y_label: quantity and unit.
        series: points by label.
        log: whether the value axis of lines and points is logarithmic.
        x_label: what lines run over.
    """

    title: str
    kind: str
    y_label: str
    series: dict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))
    log: bool = True
    x_label: str = "voxels"

    def put(self, label: str, point: Point) -> None:
        """Add a point to a series; of several runs the smallest value stays."""
        points = self.series[label]
        for place, other in enumerate(points):
            if other.x == point.x:
                points[place] = min(other, point, key=lambda p: p.y)
                return
        points.append(point)


@dataclass(frozen=True)
class Chart:
    """One picture.

    Args:
        suffix: of its file, empty if the figure has one picture.
        about: what its title says beyond the figure's.
        panels: in reading order.
    """

    suffix: str
    about: str
    panels: list[Panel]


@dataclass(frozen=True)
class View:
    """The five fields of a row that a figure draws.

    A name is that of a column of the row, of one of its settings, or of `_DERIVED`; several stand
    with blanks between them, and a word after ``=`` stands for itself.

    Args:
        y: height of a bar or a point.
        x: category of bars and points, or what lines run over.
        series: bars, points and lines of one colour.
        panel: axes. Rows without belong to all panels.
        chart: pictures; empty: one.
        kind: ``bars``, ``stacked``, ``points`` or ``lines``.
        label: quantity and unit of the heights.
        suffix: of the pictures, after the name of the chart.
        about: what titles say beside it.
        log: whether heights of points and lines are on a logarithmic axis; bars begin at zero.
        x_label: what lines run over, for the axis.
        where: which rows are drawn.
        mean: whether lines are means over the rooms, by the points asked for.
        up_to: whether a series names its largest x.
        largest: whether rows of the largest scene alone are drawn.
        beside: finds the times of other engines' own code that stand beside a row, where a file of
            them is given.

    Raises:
        ValueError: bars on a logarithmic axis.
    """

    y: str
    x: str
    series: str
    panel: str
    chart: str = ""
    kind: str = "bars"
    label: str = "time [ms]"
    suffix: str = ""
    about: str = ""
    log: bool = False
    x_label: str = "voxels"
    where: Callable[[Row], bool] = lambda row: True
    mean: bool = False
    up_to: bool = False
    largest: bool = False
    beside: Comparer | None = None

    def __post_init__(self) -> None:
        if self.log and self.kind in ("bars", "stacked"):
            raise ValueError(f"{self.kind} begin at zero; a logarithmic axis takes points or lines")


def charts(views: Sequence[View], rows: Sequence[Row], peers: PeerRows = ()) -> list[Chart]:
    """Draw rows by views; views whose pictures have one suffix share their panels.

    Args:
        views: what is drawn.
        rows: of one figure.
        peers: other engines' times, for the views that show them.
    """
    found: dict[str, Chart] = {}
    for view in views:
        theirs = list(view.beside.theirs(peers)) if view.beside else []
        heights: dict[tuple[str, ...], list[Point]] = defaultdict(list)
        drawn = [row for row in rows if view.where(row)]
        most = max((row.n or 0 for row in drawn), default=0)
        for row in drawn:
            if view.largest and row.n != most:
                continue
            point = _point(row, view)
            if point is None or not (series := words(row, view.series)):
                continue
            names = [_one(row, name) for name in view.chart.split()]
            suffix = "_".join(filter(None, ("-".join(names).replace("+", "_"), view.suffix)))
            about = ", ".join(filter(None, (*names, view.about))) or view.label
            chart = found.setdefault(suffix, Chart(suffix, about, []))
            title = words(row, view.panel)
            panel = next((one for one in chart.panels if one.title == title), None)
            if panel is None:
                panel = Panel(title, view.kind, view.label, log=view.log, x_label=view.x_label)
                chart.panels.append(panel)
            if view.mean:
                place = suffix, title, series, words(row, "points")
                heights[place].append(point)
            else:
                panel.put(series, point)
            places = view.beside.ours(row) if view.beside else ()
            for own in (best for place, best in theirs if place in places):
                spent, code = _recorded(own, view), own.name.split()[0]
                if spent is not None:
                    panel.put(f"{_CODE.get(code, code)}{AUTHORS}", Point(point.x, spent))
        for (suffix, title, series, _), points in heights.items():
            panel = next(one for one in found[suffix].panels if one.title == title)
            x, y = mean(float(p.x) for p in points), mean(p.y for p in points)
            floors = [p.floor for p in points if p.floor is not None]
            panel.put(series, Point(x, y, floor=mean(floors) if floors else None))
        if view.up_to:
            for panel in (panel for chart in found.values() for panel in chart.panels):
                panel.series = {
                    f"{name}{UP_TO}{max(float(p.x) for p in points) / 1e6:.3g} M": points
                    for name, points in panel.series.items()
                }
    return [Chart(one.suffix, one.about, _shared(one.panels)) for one in found.values()]


def time_of(row: Row) -> Point | None:
    """Time of a row, by preference on the GPU without launch gaps; ``None`` if it has none."""
    of_part = row.params is not None and not {"stage", "part"}.isdisjoint(row.params)
    busy_first = of_part and row.gpu_busy_ms is not None
    if not busy_first and row.gpu_ms is not None:
        return Point(row.n or 0, row.gpu_ms)
    if (busy_first or row.what in _WITH_MAPS) and row.gpu_busy_ms is not None:
        return Point(row.n or 0, row.gpu_busy_ms)
    if row.wall_ms is None:
        return None
    on_gpu = row.launches is not None or row.syncs is not None
    return Point(row.n or 0, row.wall_ms, hollow=on_gpu)


def words(row: Row, names: str) -> str:
    """Fields of a row as text, one a line; what it does not have is left out."""
    return "\n".join(filter(None, (_one(row, name) for name in names.split())))


def _point(row: Row, view: View) -> Point | None:
    timed = time_of(row) if view.y == "time" else None
    y: object = timed.y if timed else (row.params or {}).get(view.y)
    if view.y == "runs_per_second" and row.wall_ms:
        y = 1e3 / row.wall_ms
    elif view.y == "tflops" and (spent := time_of(row)):
        y = float((row.params or {})["gflop"]) / spent.y
    elif hasattr(row, view.y):
        y = getattr(row, view.y)
    if not isinstance(y, int | float):
        return None
    x = (row.n or 0) if view.x == "n" else words(row, view.x)
    bounded = view.y in ("time", "wall_ms") and view.kind != "stacked"
    floor = row.floor_ms if bounded and row.what not in _WITH_MAPS else None  # it is the layer's
    return Point(x, float(y), bool(timed and timed.hollow), floor)


def _recorded(best: Best, view: View) -> float | None:
    """A peer's time that stands beside ours [ms]."""
    if view.y == "wall_ms":
        return best.wall_ms
    return None if best.least == inf else best.least


def _one(row: Row, name: str) -> str:
    if name.startswith("="):
        return name[1:].replace("_", " ")
    if name in _DERIVED:
        return _DERIVED[name](row)
    value = getattr(row, name) if hasattr(row, name) else (row.params or {}).get(name)
    return "" if value is None else str(value)


def _shared(panels: list[Panel]) -> list[Panel]:
    """Rows of no panel, as those of sorting that have no kernel, belong to every one."""
    named = [panel for panel in panels if panel.title]
    for panel in panels:
        for other in named if not panel.title else ():
            other.series.update(panel.series)
    return named or panels


def _kernel(row: Row) -> str:
    return f"K = {row.k}, stride {row.stride}" if row.k else str(row.model or "")


def _layer(row: Row) -> str:
    stride = f" /{row.stride}" if row.stride not in (None, 1) else ""
    return f"{row.c_in}-{row.c_out}\nK{row.k}{stride}"


def _sizes(row: Row) -> str:
    given = row.params or {}
    return (
        "\n".join(f"{name} {given[name]}" for name in ("K", "B", "width", "scans") if name in given)
        or "usual"
    )


def _title(row: Row) -> str:
    kind = _DERIVED["kind"](row)
    if row.what == "network" and kind == "train":
        return "training step, from points"
    return TITLES.get(kind, kind)


def _short(workload: str) -> str:
    """Names of a training, and its geometry where it is no voxels; not its other options."""
    kept = (word for word in workload.split() if "=" not in word or word.startswith("geometry="))
    return "\n".join(kept).replace("_", "\n")


def _peak(row: Row) -> str:
    over = (row.params or {}).get("over_needed")
    return row.engine if over is None else f"{row.engine}\npeak {over:.2f}"


_DERIVED: dict[str, Callable[[Row], str]] = {
    "kernel": _kernel,
    "layer": _layer,
    "shape": lambda row: _layer(row).replace("\n", " "),
    "sizes": _sizes,
    "title": _title,
    "engine_peak": _peak,
    "kind": lambda row: str((row.params or {}).get("mode", row.what)),
    "cloud": lambda row: str((row.params or {}).get("cloud", row.workload)),
    "engine_cache": lambda row: row.engine + (COLD if row.cache == "cold" else ""),
    "words": lambda row: _short(row.workload),
    "variant_or_engine": lambda row: str((row.params or {}).get("variant", row.engine)),
    "groups_layer": lambda row: f"{_layer(row)}\ngroups {(row.params or {}).get('groups', 1)}",
    "product_of_map": lambda row: str((row.params or {}).get("of", f"K{row.k}\n{row.product}")),
    "of_layer": lambda row: str((row.params or {}).get("layer", "")),
    "stage_name": lambda row: STAGES.get(str((row.params or {}).get("stage")), ""),
    "size": lambda row: f"{row.n or 0:,} points",
}
