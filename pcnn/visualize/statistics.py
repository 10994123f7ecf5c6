"""Statistics of data sets on one page: real beside simulated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pcnn.datasets.statistics import Histogram, SetStatistics
from pcnn.plural import counted
from pcnn.visualize.page import FAINT, INK, new_page, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1f4e9c", "#c2410c", "#2f855a", "#7c3aed", "#b7791f", "#0e7490")
#: Bars and points of a set are told apart without their colour, too.
HATCHES = ("", "////", "....", "xxxx", "----", "++++")
MARKERS = ("o", "x", "s", "^", "D", "P")
UNITS = {"range": " m", "height": " m", "nearest": " m", "remission": ""}
_SHOWN_CLASSES = 20


def statistics_page(sets: Sequence[SetStatistics], path: str | Path) -> Path:
    """Draw the statistics of sets over one another, as a PNG.

    The first set is the one that the others are compared with: the table gives their earth mover's
    distances to it. Simulated sets are drawn dashed and named so. Uses matplotlib's object
    interface: no display and no global state.
    """
    if not 1 <= len(sets) <= len(COLOURS):
        raise ValueError(f"a page holds 1 to {len(COLOURS)} sets, got {len(sets)}")
    figure = new_page(13, 11, layout="constrained")
    axes = figure.subplots(3, 3)
    _histograms(axes[0, 0], sets, "range", "range [m]", (0, 90), 4)
    _histograms(axes[0, 1], sets, "height", "height [m]", _span(sets, "height"), 2)
    _histograms(axes[0, 2], sets, "remission", "remission", (0, 1), 1)
    _histograms(axes[1, 0], sets, "nearest", "nearest other point [m]", (0, 0.3), 5)
    _neighbours(axes[1, 1], sets)
    _points(axes[1, 2], sets)
    _rings(axes[2, 0], sets)
    _classes(axes[2, 1], sets)
    _table(axes[2, 2], sets)
    _legend(figure, axes[1, 2].patches, sets)
    return saved(figure, path, dpi=120)


def _legend(figure: Any, bars: Sequence[Any], sets: Sequence[SetStatistics]) -> None:
    """A bar, the line and the marker of every set beside its name."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=colour, marker=marker, linestyle=_style(statistics))
        for colour, marker, statistics in zip(COLOURS, MARKERS, sets, strict=False)
    ]
    figure.legend(
        list(zip(bars, lines, strict=True)),
        [f"{title(s)}, {counted(len(s.points), 'cloud')}" for s in sets],
        loc="outside upper center",
        ncols=min(len(sets), 3),
        fontsize=12,
        handlelength=5,
        handler_map={tuple: HandlerTuple(ndivide=None)},
    )


def title(statistics: SetStatistics) -> str:
    """Name a set; what is simulated says so."""
    return statistics.name + (" (SIMULATED)" if statistics.source == "simulated" else "")


def _style(statistics: SetStatistics) -> Literal["--", "-"]:
    return "--" if statistics.source == "simulated" else "-"


def _span(sets: Sequence[SetStatistics], name: str) -> tuple[float, float]:
    held = [s.histograms[name] for s in sets if name in s.histograms]
    low = min(max(h.quantile(0.001), h.low) for h in held)
    high = max(min(h.quantile(0.999), h.high) for h in held)
    margin = 0.05 * (high - low) + 0.1
    return low - margin, high + margin


def _histograms(
    axes: Axes,
    sets: Sequence[SetStatistics],
    name: str,
    label: str,
    span: tuple[float, float],
    join: int,
) -> None:
    axes.set_xlabel(label)
    axes.set_ylabel("share of points [%]")
    axes.set_xlim(*span)
    drawn = False
    for colour, statistics in zip(COLOURS, sets, strict=False):
        histogram = statistics.histograms.get(name)
        if histogram is None:
            continue
        coarse: Histogram = histogram.coarser(join)
        axes.plot(
            coarse.middles, 100 * coarse.shares, _style(statistics), color=colour, linewidth=1.5
        )
        drawn = True
    if not drawn:
        _nothing(axes, f"no {name} in these files")
    elif name == "range":
        axes.set_yscale("log")


def _nothing(axes: Axes, why: str) -> None:
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color=FAINT)


def _neighbours(axes: Axes, sets: Sequence[SetStatistics]) -> None:
    """Bars of means, with a line from the smallest to the largest cloud."""
    sizes = sorted({size for s in sets for size in s.neighbours})
    width = 0.8 / len(sets)
    for n, statistics in enumerate(sets):
        for at, size in enumerate(sizes):
            values = statistics.neighbours.get(size)
            if values is None:
                continue
            x = at + (n - (len(sets) - 1) / 2) * width
            _bar(axes, x, float(np.mean(values)), 0.9 * width, n)
            axes.plot([x, x], [min(values), max(values)], color=INK, linewidth=1.2)
    axes.set_xticks(range(len(sizes)), [f"{size:g} m" for size in sizes])
    axes.set_xlabel("voxel size")
    axes.set_ylabel("voxels in the $3^3$ box")


def _bar(axes: Axes, x: float, value: float, width: float, number: int) -> None:
    """The bar of a set; edges have the colour of its hatch."""
    colour: dict[str, Any] = {"facecolor": COLOURS[number], "edgecolor": "white"}
    axes.bar(x, value, width, **colour, hatch=HATCHES[number], linewidth=0, alpha=0.75)


def _points(axes: Axes, sets: Sequence[SetStatistics]) -> None:
    for n, statistics in enumerate(sets):
        _bar(axes, n, float(np.mean(statistics.points)) / 1e3, 0.8, n)
    for n, statistics in enumerate(sets):
        ends = [min(statistics.points) / 1e3, max(statistics.points) / 1e3]
        axes.plot([n, n], ends, color=INK, linewidth=1.2)
    axes.set_xticks([])
    axes.set_ylabel("thousand points a cloud")


def _rings(axes: Axes, sets: Sequence[SetStatistics]) -> None:
    axes.set_xlabel("ring, from the top")
    axes.set_ylabel("points a ring")
    drawn = False
    for colour, statistics in zip(COLOURS, sets, strict=False):
        if statistics.rings is not None:
            points = statistics.rings["points"]
            axes.plot(range(len(points)), points, _style(statistics), color=colour, linewidth=1.5)
            drawn = True
    if not drawn:
        _nothing(axes, "no rings in the order of the points")


def _classes(axes: Axes, sets: Sequence[SetStatistics]) -> None:
    largest: dict[str, float] = {}
    for statistics in sets:
        for name, share in (statistics.classes or {}).items():
            largest[name] = max(share, largest.get(name, 0.0))
    names = sorted(largest, key=lambda name: -largest[name])[:_SHOWN_CLASSES]
    if not names:
        _nothing(axes, "no labels")
        return
    for n, statistics in enumerate(sets):
        if statistics.classes:
            shares = [100 * statistics.classes.get(name, 0.0) or np.nan for name in names]
            look: dict[str, Any] = {"color": COLOURS[n], "marker": MARKERS[n], "linestyle": "none"}
            axes.plot(shares, range(len(names)), **look, markersize=6, markeredgewidth=1.5)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(0.005, 100)
    axes.grid(alpha=0.3)
    axes.set_xlabel("share of labelled points [%]")


def table_rows(sets: Sequence[SetStatistics]) -> list[tuple[str, list[str]]]:
    """Return what the table says: a row's name, and its value for each set."""

    def each(form: str, values: Sequence[float | None]) -> list[str]:
        return ["-" if v is None or np.isnan(v) else form.format(v) for v in values]

    rows = [
        ("clouds", [str(len(s.points)) for s in sets]),
        ("points a cloud", each("{:,.0f}", [float(np.mean(s.points)) for s in sets])),
    ]
    for size in sorted({size for s in sets for size in s.neighbours}):
        counted = [s.neighbours.get(size) for s in sets]
        means = [None if c is None else float(np.mean(c)) for c in counted]
        rows.append((f"neighbours at {size:g} m", each("{:.2f}", means)))
    for name, unit in UNITS.items():
        found = [s.histograms.get(name) for s in sets]
        if any(found):
            rows.append((f"median {name}", ["-" if h is None else _median(h, unit) for h in found]))
    rows.append(("missing returns", each("{:.1%}", [s.missing for s in sets])))
    if len(sets) > 1:
        apart = [s.distances(sets[0]) for s in sets]
        for name, unit in UNITS.items():
            if any(name in d for d in apart[1:]):
                values = [None if n == 0 else d.get(name) for n, d in enumerate(apart)]
                clipped = [_beyond(s, name) or _beyond(sets[0], name) for s in sets]
                shown = each("{:.3g}" + unit, values)
                shown = ["≥ " * (c and v != "-") + v for c, v in zip(clipped, shown, strict=True)]
                rows.append((f"EMD of {name}", shown))
    return rows


def _median(histogram: Histogram, unit: str) -> str:
    median = histogram.quantile(0.5)
    if np.isinf(median):
        low, high = f"< {histogram.low:g}", f"> {histogram.high:g}"
        return (low if median < 0 else high) + unit
    return f"{median:.3g}{unit}"


def _beyond(statistics: SetStatistics, name: str) -> bool:
    """True where values lie beyond the ends of the bins: distances are then lower bounds."""
    held = statistics.histograms.get(name)
    return held is not None and held.under + held.over > 0


def _table(axes: Axes, sets: Sequence[SetStatistics]) -> None:
    axes.set_axis_off()
    rows = table_rows(sets)
    table = axes.table(
        cellText=[values for _, values in rows],
        rowLabels=[name for name, _ in rows],
        colLabels=[s.name[:16] for s in sets],
        loc="center",
        cellLoc="right",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    table.scale(1.0, 1.3)
    for (row, column), cell in table.get_celld().items():
        cell.set_linewidth(0.3)
        if row == 0 and column >= 0:
            cell.get_text().set_color(COLOURS[column])
