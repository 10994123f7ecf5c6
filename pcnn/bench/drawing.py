"""Panels of a chart: lines and points on logarithmic axes, bars from zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pcnn.bench.appearance import BLACK, Look
from pcnn.bench.charts import Panel, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Looks = Mapping[str, Look]
#: Place of a point, the point, and its lower bound.
_Bounded = tuple[float, Point, float]

#: Label of the shortest time that memory and arithmetic allow.
FLOOR = "lower bound"
#: Share of a category that its points and bars take.
_GROUP = 0.72
#: Height and width of a letter of the smallest text [points].
SMALL, _LETTER = 6.5, 4.2
#: Lower bounds whose ratio is nearer to one are drawn as one.
_ALIKE = 0.02
#: Lines show lower bounds that are no further below the shortest time.
_REACH = 15.0


def draw(axes: Axes, panel: Panel, looks: Looks) -> None:
    """Draw a panel by its kind."""
    kinds = {"lines": _lines, "points": _points, "bars": _bars, "stacked": _stacked}
    kinds[panel.kind](axes, panel, looks)
    axes.grid(True, axis="y", which="major", color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def categories(panel: Panel) -> list[str]:
    """Labels along the axis, in their order."""
    return list(dict.fromkeys(str(p.x) for points in panel.series.values() for p in points))


def _lines(axes: Axes, panel: Panel, looks: Looks) -> None:
    lowest: dict[float, float] = {}
    for label in _ordered(panel, looks):
        ordered = sorted(panel.series[label], key=lambda point: float(point.x))
        look, x = looks[label], [float(point.x) for point in ordered]
        axes.plot(x, [p.y for p in ordered], look.line, color=look.color, lw=1.2)
        for place, point in zip(x, ordered, strict=True):
            _mark(axes, place, point, look)
            if point.floor:
                lowest[place] = min(point.floor, lowest.get(place, math.inf))
        _mark(axes, math.nan, Point("", math.nan), look, label, look.line)
    axes.set_xscale("log")
    _plain(axes.xaxis, in_short)
    least = min(point.y for points in panel.series.values() for point in points)
    near = [place for place in sorted(lowest) if lowest[place] > least / _REACH]
    if near and panel.log:
        axes.plot(near, [lowest[n] for n in near], "--", color=BLACK, lw=1, label=FLOOR)
    _heights(axes, panel)
    axes.set_xlabel(panel.x_label, fontsize=8)


def _points(axes: Axes, panel: Panel, looks: Looks) -> None:
    labels, groups = categories(panel), _groups(panel, looks)
    width = _GROUP / max(map(len, groups.values()))
    for place, category in enumerate(labels):
        if place % 2:
            axes.axvspan(place - 0.5, place + 0.5, color="0.96", lw=0, zorder=0)
        group = groups[category]
        first = place - (len(group) - 1) / 2 * width
        placed = [(first + number * width, series, p) for number, (series, p) in enumerate(group)]
        runs = _alike([(x, p, p.floor) for x, _, p in placed if p.floor])
        for run in runs:
            left, right = run[0][0], run[-1][0]
            if len(runs) == 1:  # it bounds recorded times too
                left, right = placed[0][0], placed[-1][0]
            quickest = min(run, key=lambda one: one[1].y)
            _bound(axes, *quickest, (left - width / 2.3, right + width / 2.3))
        for x, series, point in placed:
            _mark(axes, x, point, looks[series])
    for series in _ordered(panel, looks):
        _mark(axes, math.nan, Point("", math.nan), looks[series], series)
    if any(p.floor for points in panel.series.values() for p in points):
        axes.plot([], [], "-", color=BLACK, lw=1.4, label=f"{FLOOR}, × time over it")
    _heights(axes, panel)
    _name(axes, labels)


def _alike(bounded: list[_Bounded]) -> list[list[_Bounded]]:
    """Points with one lower bound, in lists."""
    runs: list[list[_Bounded]] = []
    for one in bounded:
        same = (run for run in runs if math.isclose(run[0][2], one[2], rel_tol=_ALIKE))
        run = next(same, None)
        if run is None:
            runs.append([one])
        else:
            run.append(one)
    return runs


def _bound(axes: Axes, x: float, point: Point, floor: float, ends: tuple[float, float]) -> None:
    """A point's lower bound between two places, and how often it fits into the point's time."""
    axes.plot([x, x], [floor, point.y], color="0.6", lw=0.7, zorder=1)
    axes.plot(ends, [floor, floor], "-", color=BLACK, lw=1.4, solid_capstyle="butt")
    times = point.y / floor
    axes.annotate(
        f"×{times:.1f}" if times < 10 else f"×{times:.0f}",
        (sum(ends) / 2, floor),
        xytext=(0, -2.5),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=SMALL,
    )


def _bars(axes: Axes, panel: Panel, looks: Looks) -> None:
    labels, groups = categories(panel), _groups(panel, looks)
    width = _GROUP / max(map(len, groups.values()))
    shown = _room(axes, len(labels)) * width > 5 * _LETTER
    for place, category in enumerate(labels):
        for number, (series, point) in enumerate(groups[category]):
            x = place + (number - (len(groups[category]) - 1) / 2) * width
            color = looks[series].color
            face = "none" if point.hollow else color
            bar = axes.bar(x, point.y, 0.92 * width, edgecolor=color, color=face)
            if shown:
                axes.bar_label(bar, labels=[_value(point.y)], fontsize=SMALL, padding=1)
    for series in _ordered(panel, looks):
        axes.bar([0], [0], 0, color=looks[series].color, label=series)
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.10g}")
    _name(axes, labels)


def _stacked(axes: Axes, panel: Panel, looks: Looks) -> None:
    labels = categories(panel)
    bottom = [0.0] * len(labels)
    for label, points in panel.series.items():
        heights = [sum(p.y for p in points if p.x == name) for name in labels]
        color = looks[label].color
        hollow = any(point.hollow for point in points)
        face, edge = ("none", color) if hollow else (color, "white")
        axes.bar(
            range(len(labels)),
            heights,
            0.7,
            bottom,
            edgecolor=edge,
            linewidth=1 if hollow else 0.4,
            color=face,
            label=label,
        )
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    shown = _room(axes, len(labels)) > 5 * _LETTER
    for place, height in enumerate(bottom if shown else ()):
        axes.text(place, height, _value(height), ha="center", va="bottom", fontsize=SMALL)
    axes.margins(y=0.1)
    _name(axes, labels)


def _ordered(panel: Panel, looks: Looks) -> list[str]:
    """Series of a panel in the order of the chart."""
    return [label for label in looks if label in panel.series]


def _groups(panel: Panel, looks: Looks) -> dict[str, list[tuple[str, Point]]]:
    """Series and points of every category."""
    return {
        label: [
            (series, point)
            for series in _ordered(panel, looks)
            for point in panel.series[series]
            if str(point.x) == label
        ]
        for label in categories(panel)
    }


def _mark(
    axes: Axes, x: float, point: Point, look: Look, label: str | None = None, line: str = ""
) -> None:
    face = "white" if point.hollow else look.color
    stroke = look.marker in "1234"
    axes.plot(
        [x],
        [point.y],
        marker=look.marker,
        linestyle=line or "none",
        linewidth=1.2,
        color=look.color,
        markerfacecolor=face,
        ms=7 if stroke else 5,
        mew=1.4 if stroke else 1.1,
        label=label,
    )


def _heights(axes: Axes, panel: Panel) -> None:
    """A logarithmic value axis of at least a factor of two; else one from zero."""
    axes.margins(y=0.08)
    axes.autoscale(axis="y")
    if not panel.log:
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
        axes.yaxis.set_major_formatter("{x:,.10g}")
        return
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 2 * low:
        middle = math.sqrt(low * high)
        axes.set_ylim(middle / math.sqrt(2), middle * math.sqrt(2))
    elif panel.kind == "points" and any(p.floor for ps in panel.series.values() for p in ps):
        axes.set_ylim(bottom=low * (low / high) ** 0.06)  # ratios stand below the bounds
    _plain(axes.yaxis)


def _plain(axis: Axis, shown: Callable[[float], str] = "{:,.10g}".format) -> None:
    """Label the decades of a long logarithmic axis, 1, 2 and 5 of a shorter one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    decades = math.log10(high / low) if 0 < low < high else 0.0
    if decades < 0.7:
        axis.set_major_locator(MaxNLocator(4))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.6 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: shown(value)))
    axis.set_minor_formatter(NullFormatter())


def in_short(value: float) -> str:
    """A size as 500, 20 k or 1 M; long ones would run into each other."""
    if value >= 1e6:
        return f"{value / 1e6:,.10g} M"
    return f"{value / 1e3:,.10g} k" if value >= 1e4 else f"{value:,.10g}"


def _value(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _room(axes: Axes, categories: int) -> float:
    """Width of a category [points], about."""
    figure, grid = axes.get_figure(), axes.get_gridspec()
    assert figure is not None
    assert grid is not None
    return float(72 * (figure.bbox.width / figure.dpi / grid.ncols - 0.6) / categories)


def _name(axes: Axes, labels: list[str]) -> None:
    """Names of categories; turned where they would run into each other."""
    longest = max(len(line) for label in labels for line in label.split("\n"))
    axes.set_xlim(-0.5, len(labels) - 0.5)
    if (longest + 1) * _LETTER <= _room(axes, len(labels)):
        axes.set_xticks(range(len(labels)), labels, fontsize=SMALL)
    else:
        flat = [label.replace("\n", " ") for label in labels]
        axes.set_xticks(range(len(labels)), flat, fontsize=SMALL, rotation=35, ha="right")
        for text in axes.get_xticklabels():
            text.set_rotation_mode("anchor")
    axes.tick_params(axis="x", length=0)
