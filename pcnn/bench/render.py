"""Drawing a chart into a PNG file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from pcnn.bench.charts import Chart, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

#: Meaning of a hollow marker: the times in one panel are not of one kind.
_HOLLOW = "hollow: wall time, because the call waits for the device"
#: Series that fit into a panel's own legend; more stand below all panels, once.
_FEW_SERIES = 5
#: Share of a panel above the tallest bar, for the legend.
_HEADROOM = 0.3


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
        title = f"{title}\n{_HOLLOW}"
    letters = int(figure.get_figwidth() * 13)
    lines_of_title = [part for line in title.splitlines() for part in wrap(line, letters)]
    figure.suptitle("\n".join(lines_of_title), fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _explain(figure: Figure, all_axes: Sequence[Axes]) -> None:
    """A legend in every panel, or one below them that no bar hides."""
    entries = [axes.get_legend_handles_labels() for axes in all_axes]
    if max(len(labels) for _, labels in entries) <= _FEW_SERIES:
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


def _color(number: int, series: int) -> str | tuple[float, ...]:
    """Ten colours of full strength, or else ten and ten pale ones."""
    if series <= 10:
        return f"C{number}"
    from matplotlib import colormaps

    pale, full = number // 10 % 2, number % 10
    return colormaps["tab20"](2 * full + pale)


def _draw_lines(axes: Axes, panel: Panel) -> None:
    for number, (label, points) in enumerate(panel.series.items()):
        ordered = sorted(points, key=lambda point: float(point.x))
        color = _color(number, len(panel.series))
        axes.plot([p.x for p in ordered], [p.y for p in ordered], color=color, label=label)
        for point in ordered:
            face = "none" if point.hollow else color
            axes.plot([point.x], [point.y], "o", color=color, markerfacecolor=face)
    axes.set_xscale("log")
    _plain(axes.xaxis, _in_short)
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


def _in_short(value: float) -> str:
    """A size as 500, 20 k or 1 M; long ones would run into each other."""
    if value >= 1e6:
        return f"{value / 1e6:,.10g} M"
    return f"{value / 1e3:,.10g} k" if value >= 1e4 else f"{value:,.10g}"


def _draw_bars(axes: Axes, panel: Panel) -> None:
    labels = _labels(panel)
    present = {
        label: [name for name, points in panel.series.items() if any(p.x == label for p in points)]
        for label in labels
    }
    width = 0.8 / max(map(len, present.values()))
    for number, (name, points) in enumerate(panel.series.items()):
        color = _color(number, len(panel.series))
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
    axes.margins(y=_HEADROOM)


def _draw_stacked(axes: Axes, panel: Panel) -> None:
    labels = _labels(panel)
    bottom = [0.0] * len(labels)
    for number, (label, points) in enumerate(panel.series.items()):
        heights = [sum(p.y for p in points if p.x == name) for name in labels]
        color = _color(number, len(panel.series))
        face = "none" if any(point.hollow for point in points) else color
        axes.bar(range(len(labels)), heights, 0.7, bottom, edgecolor=color, color=face, label=label)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    turned, side = (30, "right") if len(labels) > 5 else (0, "center")
    axes.set_xticks(range(len(labels)), labels, fontsize=7, rotation=turned, ha=side)
    axes.margins(y=_HEADROOM)


def _labels(panel: Panel) -> list[str]:
    return list(dict.fromkeys(str(p.x) for points in panel.series.values() for p in points))
