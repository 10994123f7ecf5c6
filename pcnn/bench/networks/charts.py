"""How rows of networks are drawn; times are from start to end, as in the papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pcnn.bench.charts import Chart, Panel, Point
from pcnn.bench.rows import Row

#: What is drawn of a row, ``None`` if it has no such figure.
Value = Callable[[Row], float | None]


def milliseconds(row: Row) -> float | None:
    """Time from start to end [ms]."""
    return row.wall_ms


def per_second(row: Row) -> float | None:
    """Networks run in a second."""
    return None if row.wall_ms is None else 1e3 / row.wall_ms


def megabytes(row: Row) -> float | None:
    """Peak memory [MiB]."""
    return row.memory_mb


def setting_of(row: Row, name: str) -> str:
    """A setting of a row as text, empty if it has none of that name."""
    return str((row.params or {}).get(name, ""))


def by_mode(
    value: Value, label: str, kind: str | None = None
) -> Callable[[Sequence[Row]], list[Chart]]:
    """A chart a mode, a panel a network, a group of bars a scene, a bar an engine.

    Args:
        value: height of a bar.
        label: what it is.
        kind: tells the charts of a figure from those of its other values.
    """

    def draw(rows: Sequence[Row]) -> list[Chart]:
        charts = []
        for mode in dict.fromkeys(setting_of(row, "mode") for row in rows):
            panels: dict[str, Panel] = {}
            for row in rows:
                found = value(row)
                if setting_of(row, "mode") != mode or found is None:
                    continue
                model = str(row.model)
                panel = panels.setdefault(model, Panel(model, "bars", label, log=False))
                panel.put(row.engine, Point(row.workload, found))
            if panels:
                name, title = (
                    (mode, mode) if kind is None else (f"{mode}_{kind}", f"{mode}, {kind}")
                )
                charts.append(Chart(name, title, list(panels.values())))
        return charts

    return draw


def together(
    *draws: Callable[[Sequence[Row]], list[Chart]],
) -> Callable[[Sequence[Row]], list[Chart]]:
    """The charts of several ways to draw the same rows."""
    return lambda rows: [chart for draw in draws for chart in draw(rows)]


def over_size(rows: Sequence[Row]) -> list[Chart]:
    """A panel a network, a line an engine, over the number of voxels."""
    panels: dict[str, Panel] = {}
    for row in rows:
        if row.wall_ms is not None:
            model = str(row.model)
            panel = panels.setdefault(model, Panel(model, "lines", "time [ms]"))
            panel.put(row.engine, Point(row.n or 0, row.wall_ms))
    return [Chart("", "inference from cells", list(panels.values()))] if panels else []


def by_setting(
    *params: str, values: Sequence[tuple[str, Value, str]] = (("", milliseconds, "time [ms]"),)
) -> Callable[[Sequence[Row]], list[Chart]]:
    """A chart a value, a panel a network and scene, a group of bars a setting, a bar an engine.

    Args:
        params: settings whose values name a group.
        values: suffix of the file, what is drawn, and its label.
    """

    def draw(rows: Sequence[Row]) -> list[Chart]:
        charts = []
        for suffix, value, label in values:
            panels: dict[tuple[str, str], Panel] = {}
            for row in rows:
                found = value(row)
                if found is None:
                    continue
                title = f"{row.model}\n{row.workload}"
                key = str(row.model), row.workload
                panel = panels.setdefault(key, Panel(title, "bars", label, log=False))
                words = [f"{n} {setting_of(row, n)}" for n in params if setting_of(row, n)]
                panel.put(row.engine, Point("\n".join(words) or "usual", found))
            if panels:
                charts.append(Chart(suffix, label, list(panels.values())))
        return charts

    return draw


def stacked(
    part: str, value: Value, label: str, bar: Callable[[Row], str]
) -> Callable[[Sequence[Row]], list[Chart]]:
    """A panel a network and scene, a stack of bars from the values of one setting.

    Args:
        part: setting that names a part of the stack.
        value: its height.
        label: quantity and unit.
        bar: name of the bar that a row belongs to.
    """

    def draw(rows: Sequence[Row]) -> list[Chart]:
        panels: dict[tuple[str, str], Panel] = {}
        for row in rows:
            height = value(row)
            if height is None or not setting_of(row, part):
                continue
            key = str(row.model), row.workload
            title = f"{row.model}\n{row.workload}"
            panel = panels.setdefault(key, Panel(title, "stacked", label, log=False))
            panel.put(setting_of(row, part), Point(bar(row), height))
        return [Chart("", part, list(panels.values()))] if panels else []

    return draw


def busy(row: Row) -> float | None:
    """Time in kernels [ms]."""
    return row.gpu_busy_ms


def number(name: str) -> Value:
    """A setting of a row that is a number."""

    def value(row: Row) -> float | None:
        found = (row.params or {}).get(name)
        return float(found) if isinstance(found, int | float) else None

    return value


def over_numbers(x: str, *names: str) -> Callable[[Sequence[Row]], list[Chart]]:
    """A panel a scene, a group of bars a value of ``x``, a bar a setting that is a number."""

    def draw(rows: Sequence[Row]) -> list[Chart]:
        panels: dict[str, Panel] = {}
        for row in rows:
            for name in names:
                height = number(name)(row)
                if height is not None:
                    panel = panels.setdefault(row.workload, Panel(row.workload, "bars", "channels"))
                    panel.put(name, Point(setting_of(row, x), height))
        return [Chart("", ", ".join(names), list(panels.values()))] if panels else []

    return draw
