"""The work of `pcnn report`: a run as one page, its figures, curves, confusion, configuration."""

from __future__ import annotations

import base64
import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcnn.config.values import selected
from pcnn.errors import FileError
from pcnn.experiment import run_folder
from pcnn.files.bounded import named, read_text, read_yaml
from pcnn.files.whole_file import whole_file
from pcnn.messages import visible
from pcnn.metrics.iou import present

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from torch import Tensor

#: Largest metrics.csv [bytes].
CSV = 1 << 28


def write_report(path: Path, folder: Path) -> bool:
    """Write the page of a run, which asks no network for anything; True if it has curves."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    file = folder / run_folder.CONFIG
    if not file.is_file():
        raise FileError(file, "no such file; give the folder of a run")
    config = read_yaml(file)
    if not isinstance(config, dict):
        raise FileError(file, "holds no configuration")
    about: dict[str, Any] = {"steps": "not finished"}
    if (folder / run_folder.METRICS).is_file():
        about = run_folder.load_metrics(folder)
    curves = read_curves(folder)
    images = {name: drawn(curve) for name, curve in curves.items() if name.count("/") < 2}
    if (folder / run_folder.CONFUSION).is_file():
        names, passes = run_folder.read_counts(folder)
        images |= {f"confusion, {one}": confusion(passes[one], names) for one in [*passes][-1:]}
    pages = Environment(
        loader=PackageLoader("pcnn.cli", "."), autoescape=True, undefined=StrictUndefined
    )
    pages.filters["visible"] = visible
    text = pages.get_template("run_report.html").render(
        name=folder.resolve().name,
        simulated=selected(config, "data.source") == "simulated",
        figures={**about.pop("metrics", {}), **about},
        images=images,
        config=read_text(file),
    )
    with whole_file(path) as page:
        page.write(text.encode())
    return bool(curves)


def read_curves(folder: Path) -> dict[str, dict[int, float]]:
    """Figures over steps; steps that a resumption repeats count once, as it has them."""
    found: dict[str, dict[int, float]] = {}
    tables = folder.glob("*/version_*/metrics.csv")
    for path in sorted(tables, key=lambda one: (len(str(one)), one)):  # version_10 behind 9
        with named(path, "table of figures"):
            for row in csv.DictReader(read_text(path, CSV).splitlines()):
                step = int(float(row.pop("step")))
                for name, value in row.items():
                    if name and name != "epoch" and value and math.isfinite(float(value)):
                        found.setdefault(name, {})[step] = float(value)
    return {name: found[name] for name in sorted(found)}


def drawn(curve: dict[int, float]) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*sorted(curve.items()), strict=True), ".-", lw=1, ms=2)
    axes.set_xlabel("step")
    return picture(figure)


def confusion(counts: Tensor, names: Sequence[str]) -> str:
    """Of the points of a class (rows) the share that each class was given."""
    from matplotlib.figure import Figure

    kept = present(counts).nonzero().squeeze(1)
    shares = (counts / counts.sum(1, keepdim=True).clamp(min=1))[kept][:, kept]
    labels = [visible(names[row]).replace("$", r"\$") for row in kept.tolist()]
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    figure.colorbar(axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1))
    axes.set_xticks(range(len(kept)), labels, rotation=90, fontsize="x-small")
    axes.set_yticks(range(len(kept)), labels, fontsize="x-small")
    axes.set_xlabel("predicted")
    return picture(figure)


def picture(figure: Figure) -> str:
    """What is drawn, as an address that holds it."""
    held = io.BytesIO()
    figure.savefig(held, format="svg")
    return "data:image/svg+xml;base64," + base64.b64encode(held.getvalue()).decode()
