"""Charts of the figures on mapping that are drawn over the size of a scan."""

from __future__ import annotations

from collections.abc import Sequence

from pcnn.bench.charts import BUSY, Chart, Panel, Point, time_of
from pcnn.bench.mapping.stages import STAGES
from pcnn.bench.rows import Row


def over_size(rows: Sequence[Row]) -> list[Chart]:
    """Charts over the number of voxels: a chart a product, a panel a kernel, a line an engine."""
    staged = [row for row in rows if row.params and "stage" in row.params]
    whole = [row for row in rows if not row.params and time_of(row)]
    charts = []
    for product in dict.fromkeys(row.product for row in whole):
        chosen = [row for row in whole if row.product == product]
        charts.append(Chart(str(product), f"product {product}", _lines(chosen)))
    stages = {str(row.params["stage"]) for row in staged if row.params}
    if len(stages) == 1:
        (stage,) = stages
        charts.append(Chart("", f"stage {STAGES[stage]}", _lines(staged)))
    elif stages:
        charts.append(Chart("stages", "by stage, at the largest scan", _stacked(staged)))
    hits = [row for row in rows if row.l2_hit_percent is not None]
    if hits:
        panel = Panel("hits in the L2 cache", "lines", "hits [%]", log=False)
        for row in hits:
            panel.put(row.engine, Point(row.n or 0, row.l2_hit_percent or 0.0))
        charts.append(Chart("l2", "the L2 cache is empty before every kernel", [panel]))
    return charts


def _lines(rows: Sequence[Row]) -> list[Panel]:
    panels: dict[tuple[int | None, int | None], Panel] = {}
    for row in rows:
        point = time_of(row)
        if point is None:
            continue
        title = f"K = {row.k}, stride {row.stride}" if row.k else ""
        panel = panels.setdefault((row.k, row.stride), Panel(title, "lines", "time [ms]"))
        panel.put(f"{row.engine}, cold cache" if row.cache == "cold" else row.engine, point)
    return _merged(list(panels.values()))


def _merged(panels: list[Panel]) -> list[Panel]:
    """Rows of no kernel (sorting) belong to every panel that has one."""
    of_kernels = [panel for panel in panels if panel.title]
    for panel in panels:
        if not panel.title:
            for other in of_kernels:
                other.series.update(panel.series)
    return of_kernels or panels


def _stacked(rows: Sequence[Row]) -> list[Panel]:
    largest = max(row.n or 0 for row in rows)
    panels: dict[tuple[int | None, int | None], Panel] = {}
    for row in rows:
        point = time_of(row)
        if row.n != largest or point is None or row.params is None:
            continue
        title = f"K = {row.k}, stride {row.stride}, {row.workload}, product {row.product}"
        panel = panels.setdefault((row.k, row.stride), Panel(title, "stacked", BUSY, log=False))
        label = STAGES[str(row.params["stage"])]
        panel.put(label, Point(row.engine, point.y))
    return list(panels.values())
