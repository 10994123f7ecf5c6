"""How rows of layers are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pcnn.bench.charts import Chart, Panel, Point, time_of
from pcnn.bench.rows import Row


def layer_label(row: Row) -> str:
    """Channels and kernel of a row, for an axis."""
    stride = f" /{row.stride}" if row.stride not in (None, 1) else ""
    return f"{row.c_in}-{row.c_out}\nK{row.k}{stride}"


def _dtype(row: Row) -> str:
    return row.dtype or ""


def over_layers(rows: Sequence[Row]) -> list[Chart]:
    """A chart a kind and dtype, a panel a scene, a group of bars a layer, and the floors."""
    charts = []
    for kind in dict.fromkeys((row.what, _dtype(row)) for row in rows):
        panels: dict[str, Panel] = {}
        for row in rows:
            point = time_of(row)
            if (row.what, _dtype(row)) != kind or point is None:
                continue
            panel = panels.setdefault(row.workload, Panel(row.workload, "bars", "time [ms]"))
            panel.put(row.engine, Point(layer_label(row), point.y, point.hollow))
            if row.floor_ms:
                panel.put("floor", Point(layer_label(row), row.floor_ms))
        if panels:
            what, dtype = kind
            charts.append(Chart(f"{what.replace('+', '_')}-{dtype}", what, list(panels.values())))
    return charts


def by_setting(*params: str) -> Callable[[Sequence[Row]], list[Chart]]:
    """A chart a part, a panel a scene, a group of bars a layer, a bar a value of these settings."""

    def draw(rows: Sequence[Row]) -> list[Chart]:
        charts = []
        for part in dict.fromkeys(_part(row) for row in rows):
            panels: dict[str, Panel] = {}
            for row in rows:
                point = time_of(row)
                if point is None or row.params is None or _part(row) != part:
                    continue
                panel = panels.setdefault(row.workload, Panel(row.workload, "bars", "time [ms]"))
                label = ", ".join(str(row.params[name]) for name in params if name in row.params)
                panel.put(label, Point(layer_label(row), point.y, point.hollow))
            if panels:
                about = ", ".join((*params, part) if part else params)
                charts.append(Chart(part, about, list(panels.values())))
        return charts

    return draw


def _part(row: Row) -> str:
    return str((row.params or {}).get("part", ""))


def parts_of(part: str, bars: str = "variant") -> Callable[[Sequence[Row]], list[Chart]]:
    """A panel a scene and layer, a stack of bars a value of ``bars``, a part one of ``part``.

    Rows without a setting ``bars`` stand under their engine.
    """

    def draw(rows: Sequence[Row]) -> list[Chart]:
        panels: dict[tuple[str, str], Panel] = {}
        for row in rows:
            if row.gpu_busy_ms is None or row.params is None or part not in row.params:
                continue
            layer = layer_label(row).replace("\n", " ")
            key = row.workload, layer
            title = f"{row.workload}\n{layer}"
            panel = panels.setdefault(key, Panel(title, "stacked", "time [ms]", log=False))
            name = str(row.params.get(bars, row.engine))
            panel.put(str(row.params[part]), Point(name, row.gpu_busy_ms))
        return [Chart("", part, list(panels.values()))] if panels else []

    return draw


def values_of(x: str, y: str, label: str) -> Callable[[Sequence[Row]], list[Chart]]:
    """A panel a kernel, a group of bars a value of ``x``, a bar a scene, its height ``y``.

    For rows whose settings hold figures other than times.
    """

    def draw(rows: Sequence[Row]) -> list[Chart]:
        panels: dict[int, Panel] = {}
        for row in rows:
            if row.params is None or x not in row.params or y not in row.params:
                continue
            panel = panels.setdefault(row.k or 0, Panel(f"K = {row.k}", "bars", label, log=False))
            panel.put(row.workload, Point(str(row.params[x]), float(row.params[y])))
        return [Chart("", label, list(panels.values()))] if panels else []

    return draw
