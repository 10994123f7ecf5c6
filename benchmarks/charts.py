"""Charts of result files: what is drawn of a figure stands in ``charts.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
import yaml

from benchmarks.rows import Row, is_measured, read

mpl.use("agg")
SPECS = Path(__file__).with_name("charts.yaml")
#: One method has one colour in every chart: an engine, the map builder of its paper, and its line.
COLOURS = {
    "#0072B2": "auto graph native windowed plan",
    "#D55E00": "spira z_delta Spira",
    "#E69F00": "minuet double_traversed Minuet",
    "#009E73": "torchsparse hash_table",
    "#88CCEE": "torchsparse++ TorchSparse++",
    "#CC79A7": "pointcnnpp pointelligence",
    "#332288": "eager voxel",
    "#117733": "binary_search",
    "#9F8CE0": "spconv",
    "#882255": "spconv-triton",
}
METHODS = {name: colour for colour, names in COLOURS.items() for name in names.split()}


def specs() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(SPECS.read_text())
    return found


def table(rows: Sequence[Row]) -> Any:
    """Rows as a table, with ``on_device_ms``, ``time_ms`` and the name of the layer."""
    flat = [{**row.get("machine", {}), **row, **row["result"]} for row in rows]
    data = pd.DataFrame(flat).drop(columns=["machine", "result"], errors="ignore")
    for name in ("device_ms", "busy_ms", "wall_ms", "c_in", "c_out", "k"):
        if name not in data:
            data[name] = None
    data["on_device_ms"] = data["device_ms"].fillna(data["busy_ms"])
    data["time_ms"] = data["on_device_ms"].fillna(data["wall_ms"])
    numbers = data[["c_in", "c_out", "k"]].astype("Int64").astype(str)
    data["layer"] = numbers["c_in"] + ">" + numbers["c_out"] + " K" + numbers["k"]
    return data.infer_objects()


def draw(path: Path, folder: Path | None = None) -> list[Path]:
    rows = [row for row in read(path) if is_measured(row)]
    known, drawn = specs(), []
    for name in dict.fromkeys(row["figure"] for row in rows):
        own = [row for row in rows if row["figure"] == name]
        spec = {**known["default"], **known.get(name, {})}
        chart = _draw(table(own), spec)
        if chart is None:
            continue
        device = own[0]["machine"]["device"]
        data = ", ".join(dict.fromkeys(str(row.get("workload", "")) for row in own))
        chart.suptitle(f"{name}: {device}, {data}"[:120], y=1.02)
        file = (folder or path.parent) / f"{path.stem}-{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        chart.savefig(file, dpi=100, bbox_inches="tight")
        mpl.pyplot.close(chart)
        drawn.append(file)
    return drawn


def _draw(data: Any, spec: dict[str, Any]) -> Any:
    x, y, hue = spec["x"], spec["y"], spec["hue"]
    if any(name not in data for name in (x, y, hue)):
        return None
    data = data.dropna(subset=[x, y, hue])
    facets = {key: spec[key] for key in ("col", "row") if spec.get(key) in data}
    if data.empty:
        return None
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
    return grid.figure
