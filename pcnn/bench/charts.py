"""Which rows of a figure belong in which panel, and how they are drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from pcnn.bench.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

#: What a hollow marker means: the times in one panel are not of one kind.
HOLLOW = "hollow: wall time, because the call waits for the device"


#: Kinds of rows whose map may wait for the host, between kernels that are timed one by one.
LAYERS_WITH_MAPS = ("map+layer", "map+train")
#: Series that fit into a panel's own legend; more stand below all panels, once.
FEW_SERIES = 5
#: Share of a panel above the tallest bar, for the legend.
HEADROOM = 0.3
#: Label of the times of stages.
BUSY = "time in kernels, on a CPU in operators [ms]"


@dataclass(frozen=True)
class Point:
    """One value.

    Args:
        x: voxels, or the label of a bar.
        y: milliseconds or percent.
        hollow: a wall time among GPU times.
    """

    x: float | str
    y: float
    hollow: bool = False


@dataclass
class Panel:
    """One pair of axes.

    Args:
        title: kernel, workload or network.
        kind: ``lines`` over the number of voxels, ``bars``, or ``stacked`` bars.
        y_label: quantity and unit.
        series: points by label.
        log: whether the value axis is logarithmic.
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


def time_of(row: Row) -> Point | None:
    """Time of a row, by preference on the GPU without launch gaps; ``None`` if it has none."""
    of_part = row.params is not None and not {"stage", "part"}.isdisjoint(row.params)
    if of_part and row.gpu_busy_ms is not None:
        return Point(row.n or 0, row.gpu_busy_ms)
    if row.gpu_ms is not None:
        return Point(row.n or 0, row.gpu_ms)
    if row.what in LAYERS_WITH_MAPS and row.gpu_busy_ms is not None:
        return Point(row.n or 0, row.gpu_busy_ms)
    if row.wall_ms is None:
        return None
    on_gpu = row.launches is not None or row.syncs is not None
    return Point(row.n or 0, row.wall_ms, hollow=on_gpu)


def bars_of(*params: str) -> Callable[[Sequence[Row]], list[Chart]]:
    """Charts with a bar for every value of these settings, and a panel for every workload."""

    def draw(rows: Sequence[Row]) -> list[Chart]:
        panels: dict[tuple[object, ...], Panel] = {}
        for row in rows:
            point = time_of(row)
            if point is None or row.params is None:
                continue
            kernel = f"K = {row.k}, stride {row.stride}" if row.k else str(row.model)
            key = kernel, row.workload
            title = f"{kernel}\n{row.workload}"
            panel = panels.setdefault(key, Panel(title, "bars", "time [ms]", log=False))
            label = "\n".join(str(row.params[name]) for name in params)
            panel.put(row.engine, Point(label, point.y, point.hollow))
        return [Chart("", ", ".join(params), list(panels.values()))] if panels else []

    return draw


def stacked_by(part: str, *params: str) -> Callable[[Sequence[Row]], list[Chart]]:
    """Charts with a bar for every value of these settings, stacked from the values of ``part``."""

    def draw(rows: Sequence[Row]) -> list[Chart]:
        panels: dict[tuple[object, ...], Panel] = {}
        for row in rows:
            point = time_of(row)
            if point is None or row.params is None:
                continue
            title = f"K = {row.k}, stride {row.stride}\n{row.workload}"
            key = row.k, row.stride, row.workload
            panel = panels.setdefault(key, Panel(title, "stacked", "time [ms]", log=False))
            label = "\n".join(str(row.params[name]) for name in params)
            panel.put(str(row.params[part]), Point(label, point.y, point.hollow))
        return [Chart("", ", ".join(params), list(panels.values()))] if panels else []

    return draw


def render(chart: Chart, title: str, path: Path) -> Path:
    """Draw a chart into a PNG file.

    Returns:
        ``path``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 2 if len(chart.panels) in (2, 4) else min(3, len(chart.panels))
    lines = -(-len(chart.panels) // columns)
    figure = Figure(figsize=(max(8.0, 5.2 * columns), 1.2 + 4.2 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, panel in zip(all_axes, chart.panels, strict=False):
        {"lines": _draw_lines, "bars": _draw_bars, "stacked": _draw_stacked}[panel.kind](
            axes, panel
        )
        axes.set_title(panel.title, fontsize=10)
        axes.set_ylabel(panel.y_label)
        axes.grid(True, axis="y", which="both", alpha=0.3)
    _explain(figure, list(all_axes[: len(chart.panels)]))
    for axes in all_axes[len(chart.panels) :]:
        axes.set_visible(False)
    if any(p.hollow for panel in chart.panels for points in panel.series.values() for p in points):
        title = f"{title}\n{HOLLOW}"
    letters = int(figure.get_figwidth() * 13)
    lines_of_title = [part for line in title.splitlines() for part in wrap(line, letters)]
    figure.suptitle("\n".join(lines_of_title), fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _explain(figure: Figure, all_axes: Sequence[Axes]) -> None:
    """A legend in every panel, or one below them that no bar hides."""
    entries = [axes.get_legend_handles_labels() for axes in all_axes]
    if max(len(labels) for _, labels in entries) <= FEW_SERIES:
        for axes in all_axes:
            axes.legend(fontsize=7)
        return
    by_label = {
        label.replace("\n", " "): handle
        for handles, labels in entries
        for handle, label in zip(handles, labels, strict=True)
    }
    columns = max(1, int(figure.get_figwidth() / 2.5))
    figure.legend(
        by_label.values(), by_label, loc="outside lower center", ncols=columns, fontsize=8
    )


def color_of(number: int, series: int) -> str | tuple[float, ...]:
    """Colour of a series among so many: ten of full strength, or else ten and ten pale ones."""
    if series <= 10:
        return f"C{number}"
    from matplotlib import colormaps

    pale, full = number // 10 % 2, number % 10
    return colormaps["tab20"](2 * full + pale)


def _draw_lines(axes: Axes, panel: Panel) -> None:
    for number, (label, points) in enumerate(panel.series.items()):
        ordered = sorted(points, key=lambda point: float(point.x))
        color = color_of(number, len(panel.series))
        axes.plot([p.x for p in ordered], [p.y for p in ordered], color=color, label=label)
        for point in ordered:
            face = "none" if point.hollow else color
            axes.plot([point.x], [point.y], "o", color=color, markerfacecolor=face)
    axes.set_xscale("log")
    _plain(axes.xaxis, in_short)
    if panel.log:
        axes.set_yscale("log")
        _plain(axes.yaxis)
    axes.set_xlabel(panel.x_label)


def _plain(axis: Axis, shown: Callable[[float], str] = "{:,.10g}".format) -> None:
    """Label 1, 2 and 5 of every decade of a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: shown(value)))
    axis.set_minor_formatter(NullFormatter())


def in_short(value: float) -> str:
    """A size as 500, 20 k or 1 M: long ones would run into each other."""
    if value >= 1e6:
        return f"{value / 1e6:,.10g} M"
    return f"{value / 1e3:,.10g} k" if value >= 1e4 else f"{value:,.10g}"


def _draw_bars(axes: Axes, panel: Panel) -> None:
    labels = list(dict.fromkeys(str(p.x) for points in panel.series.values() for p in points))
    present = {
        label: [name for name, points in panel.series.items() if any(p.x == label for p in points)]
        for label in labels
    }
    width = 0.8 / max(map(len, present.values()))
    for number, (name, points) in enumerate(panel.series.items()):
        color = color_of(number, len(panel.series))
        for place, point in enumerate(points):
            group = present[str(point.x)]
            shift = group.index(name) - (len(group) - 1) / 2  # a group stands around its label
            axes.bar(
                labels.index(str(point.x)) + shift * width,
                point.y,
                width,
                edgecolor=color,
                color="none" if point.hollow else color,
                label=name if place == 0 else None,
            )
    if panel.log:
        axes.set_yscale("log")
        _plain(axes.yaxis)
    axes.set_xticks(range(len(labels)), labels, fontsize=7)
    axes.margins(y=HEADROOM)


def _draw_stacked(axes: Axes, panel: Panel) -> None:
    labels = list(dict.fromkeys(str(p.x) for points in panel.series.values() for p in points))
    bottom = [0.0] * len(labels)
    for number, (label, points) in enumerate(panel.series.items()):
        heights = [0.0] * len(labels)
        hollow = any(point.hollow for point in points)
        for point in points:
            heights[labels.index(str(point.x))] += point.y
        color = color_of(number, len(panel.series))
        axes.bar(
            range(len(labels)),
            heights,
            0.7,
            bottom,
            edgecolor=color,
            color="none" if hollow else color,
            label=label,
        )
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    crowded = len(labels) > 5
    axes.set_xticks(
        range(len(labels)),
        labels,
        fontsize=7,
        rotation=30 if crowded else 0,
        ha="right" if crowded else "center",
    )
    axes.margins(y=HEADROOM)
