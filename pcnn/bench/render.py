"""Drawing a chart into a PNG file, as wide as a column of text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from pcnn.bench.appearance import AUTHORS, looks
from pcnn.bench.charts import UP_TO, Chart
from pcnn.bench.drawing import SMALL, categories, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Meaning of a hollow marker: the times in one panel are not of one kind.
_HOLLOW = "hollow: wall time, because the call waits for the device"
#: Width of a picture, height of a row of panels and of all else [inches]; dots an inch.
_WIDTH, _ROW, _REST, _DOTS = 8.2, 2.6, 0.9, 144
#: Categories of a panel that fits three times beside itself.
_NARROW = 4
#: Points of a panel that stands alone in its row.
_CROWDED = 80


def render(chart: Chart, title: str, path: Path) -> Path:
    """Draw a chart into a PNG file.

    Args:
        chart: its panels have series with points.
        title: the first line says what is shown, further ones where it was measured.
        path: the file; its folder is made.

    Returns:
        ``path``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = _columns(chart)
    lines = -(-len(chart.panels) // columns)
    tall = max(label.count("\n") for panel in chart.panels for label in categories(panel))
    height = _REST + _ROW * lines + max(0, tall - 2) * SMALL / 60
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = list(figure.subplots(lines, columns, squeeze=False).ravel())
    used = all_axes[: len(chart.panels)]
    labels = dict.fromkeys(label for panel in chart.panels for label in panel.series)
    found = looks(sorted(labels, key=lambda label: label.endswith(AUTHORS)))
    for axes, panel in zip(used, chart.panels, strict=True):
        draw(axes, panel, found)
        axes.set_title(panel.title.replace("\n", ", "), fontsize=8.5)
        axes.set_ylabel("\n".join(wrap(panel.y_label, 34)), fontsize=8)
    for axes in all_axes[len(used) :]:
        axes.set_visible(False)
    named = [panel.kind != "lines" and categories(panel) for panel in chart.panels]
    for axes, above, below in zip(used, named, named[columns:], strict=False):
        if above and above == below:  # one column has the names of its categories once
            axes.tick_params(labelbottom=False)
    _explain(figure, used)
    if any(p.hollow for panel in chart.panels for points in panel.series.values() for p in points):
        title = f"{title}\n{_HOLLOW}"
    written = [part for line in title.splitlines() for part in wrap(line, 120)]
    figure.suptitle("\n".join(written), fontsize=8.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DOTS)
    return path


def _columns(chart: Chart) -> int:
    """Panels side by side: three narrow ones, two, or one that is crowded."""
    names = [len(categories(panel)) for panel in chart.panels if panel.kind != "lines"]
    crowded = any(
        len(categories(panel)) * len(panel.series) > _CROWDED
        for panel in chart.panels
        if panel.kind == "points"
    )
    narrow = len(names) == len(chart.panels) and max(names) <= _NARROW
    most = 1 if crowded else 3 if narrow and len(chart.panels) not in (2, 4) else 2
    return min(most, len(chart.panels))


def _explain(figure: Figure, all_axes: Sequence[Axes]) -> None:
    """One legend below all panels, where it hides nothing; limits in the panel that has them."""
    if any(UP_TO in label for axes in all_axes for label in axes.get_legend_handles_labels()[1]):
        for axes in all_axes:
            axes.legend(fontsize=7, frameon=False, loc="lower right")
        return
    by_label = {
        label.replace("\n", " "): handle
        for axes in all_axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = max(1, min(len(by_label), int(72 * _WIDTH / (32 + 3.7 * max(map(len, by_label))))))
    figure.legend(
        by_label.values(),
        by_label,
        loc="outside lower center",
        ncols=columns,
        fontsize=7,
        frameon=False,
    )
