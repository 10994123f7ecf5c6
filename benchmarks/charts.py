"""Charts of result files: what is drawn of a figure stands in ``charts.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
import yaml

from benchmarks.rows import Row, frame, is_measured, read

mpl.use("agg")
SPECS = Path(__file__).with_name("charts.yaml")
#: One method has one colour in every chart: an engine, the map builder of its paper, and its line.
BLUE, RED, ORANGE, GREEN, CYAN, PINK = (
    "#0072B2",
    "#D55E00",
    "#E69F00",
    "#009E73",
    "#88CCEE",
    "#CC79A7",
)
METHODS = {
    **dict.fromkeys(("auto", "graph", "native", "windowed", "row_stationary", "plan"), BLUE),
    **dict.fromkeys(("spira", "z_delta", "Spira"), RED),
    **dict.fromkeys(("minuet", "double_traversed", "Minuet"), ORANGE),
    **dict.fromkeys(("torchsparse", "hash_table"), GREEN),
    **dict.fromkeys(("torchsparse++", "TorchSparse++"), CYAN),
    **dict.fromkeys(("pointcnnpp", "pointelligence", "triplets_k"), PINK),
    "eager": "#332288",
    "voxel": "#332288",
    "degraded": "#555555",
    "binary_search": "#117733",
    "spconv": "#9F8CE0",
    "spconv-triton": "#882255",
    "flexgemm": "#AA1111",
    "warpconvnet": "#DDCC77",
}


def specs() -> dict[str, dict[str, Any]]:
    """What is drawn, by figure."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(SPECS.read_text())
    return found


def table(rows: Sequence[Row]) -> Any:
    """Rows as a table, with ``time_ms`` and the name of the layer."""
    data = frame(rows)
    for name in ("device_ms", "busy_ms", "wall_ms", "c_in", "c_out", "k"):
        if name not in data:
            data[name] = None
    data["time_ms"] = data["device_ms"].fillna(data["busy_ms"]).fillna(data["wall_ms"])
    numbers = data[["c_in", "c_out", "k"]].astype("Int64").astype(str)
    data["layer"] = numbers["c_in"] + ">" + numbers["c_out"] + " K" + numbers["k"]
    return data.infer_objects()


def draw(path: Path, peers: Sequence[Path] = (), folder: Path | None = None) -> list[Path]:
    """Draw the charts of all figures in a result file."""
    rows = [row for row in read(path) if is_measured(row)]
    others = [row for file in peers for row in read(file)]
    known, drawn = specs(), []
    for name in dict.fromkeys(row["figure"] for row in rows):
        own = [row for row in rows if row["figure"] == name]
        places = {(row.get("what"), row.get("workload"), row.get("n")) for row in own}
        beside = [r for r in others if (r["what"], r["workload"], r["n"]) in places]
        spec = {**known["default"], **known.get(name, {})}
        chart = _draw(table([*own, *beside]), spec)
        if chart is None:
            continue
        device, data = own[0]["machine"]["device"], ", ".join(dict.fromkeys(_data(own)))
        chart.suptitle(f"{name}: {device}, {data}"[:120], y=1.02)
        file = (folder or path.parent) / f"{path.stem}-{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        chart.savefig(file, dpi=100, bbox_inches="tight")
        mpl.pyplot.close(chart)
        drawn.append(file)
    return drawn


def _data(rows: Sequence[Row]) -> list[str]:
    return [str(row.get("workload", "")) for row in rows]


def _draw(data: Any, spec: dict[str, Any]) -> Any:
    """A figure of matplotlib; ``None`` where no row has what is drawn."""
    x, y, hue = spec["x"], spec["y"], spec["hue"]
    if any(name not in data for name in (x, y, hue)):
        return None
    data = data.dropna(subset=[x, y, hue])
    facets = {key: spec[key] for key in ("col", "row") if spec.get(key) in data}
    if data.empty:
        return None
    if spec["kind"] == "stacked":
        return _stacked(data, x, y, hue, facets.get("col"))
    hues = [str(one) for one in dict.fromkeys(data[hue])]
    data = data.assign(**{hue: data[hue].astype(str)})
    rest = iter(sns.color_palette("tab10") * (1 + len(hues) // 10))
    colours = {one: METHODS.get(one.split()[0]) or next(rest) for one in hues}
    words = {"data": data, "x": x, "y": y, "hue": hue, "palette": colours, "height": 3.2, **facets}
    shared = {"sharex": False, "sharey": False}
    if spec["kind"] == "line":
        grid = sns.relplot(**words, kind="line", marker="o", facet_kws=shared, errorbar=None)
    else:
        more = {"errorbar": None} if spec["kind"] == "bar" else {}
        grid = sns.catplot(**words, kind=spec["kind"], aspect=1.5, **shared, **more)
    for axis in grid.axes.flat:
        axis.tick_params(axis="x", labelrotation=30)
        if spec["kind"] != "bar":
            axis.set_yscale("log")
        if spec.get("floor") and "floor_ms" in data:
            _floors(axis, data, x)
    return grid.figure


def _floors(axis: Any, data: Any, x: str) -> None:
    """Lower bounds as strokes under the points."""
    lowest = data.groupby(x)["floor_ms"].min().dropna()
    names = [label.get_text() for label in axis.get_xticklabels()]
    for place, name in enumerate(names):
        if name in lowest:
            axis.hlines(lowest[name], place - 0.3, place + 0.3, colors="black", linewidth=1)


def _stacked(data: Any, x: str, y: str, hue: str, col: str | None) -> Any:
    values = list(dict.fromkeys(data[col])) if col else [None]
    made, axes = mpl.pyplot.subplots(1, len(values), figsize=(5 * len(values), 3.2), squeeze=False)
    for axis, value in zip(axes.flat, values, strict=True):
        own = data if value is None else data[data[col] == value]
        wide = own.pivot_table(index=x, columns=hue, values=y, aggfunc="mean", sort=False)
        wide.plot.bar(stacked=True, ax=axis, title="" if value is None else f"{col} = {value}")
        axis.set_ylabel(y)
    return made
