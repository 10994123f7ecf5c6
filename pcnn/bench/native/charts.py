"""How rows of native points are drawn: lines over the number of points, means over the rooms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean

from pcnn.bench.charts import Chart, Panel, Point, time_of
from pcnn.bench.layers.charts import layer_label
from pcnn.bench.networks.charts import Value, megabytes, milliseconds, number, setting_of
from pcnn.bench.rows import Row

Draw = Callable[[Sequence[Row]], list[Chart]]

#: Titles of kinds of rows and of modes of networks.
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
#: Titles where they are of networks.
OF_NETWORKS = TITLES | {"train": "training step, from points"}


def device_ms(row: Row) -> float | None:
    """Time on the device; from start to end where the call waits for it."""
    point = time_of(row)
    return None if point is None else point.y


def over_points(*values: tuple[str, Value, str]) -> Draw:
    """A chart a value, a panel a kind of row or mode, a line a line, over the points of the rooms.

    Args:
        values: suffix of the file, what is drawn, and its label.
    """

    def draw(rows: Sequence[Row]) -> list[Chart]:
        charts = []
        for suffix, value, label in values:
            panels: dict[str, Panel] = {}
            found: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
            for row in rows:
                height = value(row)
                if height is not None and row.n:
                    title = title_of(row)
                    found[title, row.engine, setting_of(row, "points")].append((row.n, height))
            for (title, engine, _), places in found.items():
                panel = panels.setdefault(title, Panel(title, "lines", label, x_label="points"))
                x, y = (mean(numbers) for numbers in zip(*places, strict=True))
                panel.put(engine, Point(x, y))
            if panels:
                rooms = len({setting_of(row, "room") for row in rows} - {""})
                charts.append(Chart(suffix, f"mean of {rooms} rooms", list(panels.values())))
        return charts

    return draw


def title_of(row: Row) -> str:
    """What a row is about, in words."""
    if row.what == "network":
        return OF_NETWORKS[setting_of(row, "mode")]
    return TITLES[row.what]


def by_cloud(label: Callable[[Row], str], value: Value = milliseconds) -> Draw:
    """A chart a kind of row, a panel a cloud, a group of bars a label, a bar a line."""

    def draw(rows: Sequence[Row]) -> list[Chart]:
        charts: dict[str, dict[str, Panel]] = {}
        for row in rows:
            height = value(row)
            if height is None:
                continue
            kind = setting_of(row, "mode") or row.what
            cloud = setting_of(row, "cloud") or row.workload
            panels = charts.setdefault(kind, {})
            title = f"{cloud}\n{TITLES.get(kind, kind)}"
            panel = panels.setdefault(cloud, Panel(title, "bars", "wall time [ms]", log=False))
            panel.put(row.engine, Point(label(row), height))
        return [
            Chart(kind.replace("+", "_"), kind, list(panels.values()))
            for kind, panels in charts.items()
        ]

    return draw


def groups_label(row: Row) -> str:
    """Channels, kernel and groups."""
    return f"{layer_label(row)}\ngroups {setting_of(row, 'groups') or 1}"


def product_label(row: Row) -> str:
    """Kernel and product of a map."""
    return setting_of(row, "of") or f"K{row.k}\n{row.product}"


def shares(rows: Sequence[Row]) -> list[Chart]:
    """A panel a cloud: what a step must hold, stacked a line; the peak in the name of the bar."""
    panels: dict[str, Panel] = {}
    for row in rows:
        peak = number("over_needed")(row)
        name = row.engine if peak is None else f"{row.engine}\npeak {peak:.2f}"
        panel = panels.setdefault(
            row.workload, Panel(row.workload, "stacked", "needed memory [MiB]", log=False)
        )
        for part in ("activations", "weights", "gradients", "layouts"):
            height = number(f"{part}_mb")(row)
            if height is not None:
                panel.put(part, Point(name, height))
    panels = {name: panel for name, panel in panels.items() if panel.series}
    return [Chart("", "peak over what is needed", list(panels.values()))] if panels else []


def peaks(rows: Sequence[Row]) -> list[Chart]:
    """Peak memory over points, inference and training, with the largest cloud of every line."""
    panels: dict[str, Panel] = {}
    for mode in ("infer", "train"):
        own = [row for row in rows if setting_of(row, "mode") == mode and row.memory_mb]
        for engine in dict.fromkeys(row.engine for row in own):
            mine = [row for row in own if row.engine == engine]
            largest = max(row.n or 0 for row in mine) / 1e6
            title = OF_NETWORKS[mode]
            panel = panels.setdefault(
                title, Panel(title, "lines", "peak memory [MiB]", x_label="points")
            )
            for row in mine:
                assert row.memory_mb is not None
                panel.put(f"{engine}, up to {largest:.3g} M", Point(row.n or 0, row.memory_mb))
    return [Chart("", "peak of the allocator", list(panels.values()))] if panels else []


#: Time and peak memory over the points of rooms.
TIME: tuple[str, Value, str] = ("", device_ms, "time [ms]")
WALL: tuple[str, Value, str] = ("", milliseconds, "wall time [ms]")
MEMORY: tuple[str, Value, str] = ("memory", megabytes, "peak memory [MiB]")
