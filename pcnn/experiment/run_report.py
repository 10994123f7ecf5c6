"""Runs as one page: what they are, figures, curves, confusion, pictures and configuration."""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcnn.errors import FileError
from pcnn.experiment import run_folder
from pcnn.experiment.run_folder import CONFUSION, Counts, read_counts
from pcnn.files.bounded import named, read_text, read_yaml
from pcnn.files.whole_file import whole_file
from pcnn.messages import short_names, visible
from pcnn.metrics.iou import class_accuracy, iou, present

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

#: Largest metrics.csv [bytes], most pictures of a run, and most bytes of one.
CSV, PICTURES, PICTURE = 1 << 28, 8, 1 << 24
#: Entries of metrics.json and of the configuration that say which run it is.
ABOUT = ("dataset", "source", "model", "task", "geometry", "engine", "seed", "steps", "revision")

Series = list[tuple[int, float]]


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A run as its folder tells it."""

    name: str
    folder: Path
    config: Mapping[str, Any]  # by dotted name
    metrics: Mapping[str, Any] = field(default_factory=dict)  # none where it is not finished
    series: Mapping[str, Series] = field(default_factory=dict)  # figures over steps
    counts: Counts = Counts((), {})  # noqa: RUF009 - a value
    pictures: Sequence[Path] = ()

    @classmethod
    def read(cls, folder: Path, name: str) -> RecordedRun:
        """Read what a folder of `train.py` or `eval.py` holds, finished or not."""
        path = folder / run_folder.CONFIG
        if not path.is_file():
            raise FileError(path, "no such file; give the folder of a run")
        content = read_yaml(path)
        if not isinstance(content, dict):
            raise FileError(path, "holds no configuration")
        finished = (folder / run_folder.METRICS).is_file()
        images = sorted(folder.glob("*.png"))
        return cls(
            name,
            folder,
            flat(content),
            run_folder.load_metrics(folder) if finished else {},
            read_series(folder.glob("*/version_*/metrics.csv")),
            read_counts(folder) if (folder / CONFUSION).is_file() else Counts((), {}),
            [one for one in images if one.stat().st_size <= PICTURE][:PICTURES],
        )

    @property
    def about(self) -> dict[str, Any]:
        """What the run is."""
        last = max((values[-1][0] for values in self.series.values()), default=0)
        known = {"steps": f"not finished, {last} so far", **self.config, **self.metrics}
        found = {}
        for name in ABOUT:
            keys = name, f"{name}.name", f"data.{name}"
            found[name] = next((known[key] for key in keys if key in known), "-")
        return found | {"folder": self.folder}

    @property
    def figures(self) -> dict[str, float]:
        """Final figures, without those of single classes."""
        found = self.metrics.get("metrics") or {}
        return {name: value for name, value in found.items() if name.count("/") < 2}

    @property
    def classes(self) -> dict[str, float]:
        """IoU of every class, or the share of right answers of a classification [%]."""
        found: dict[str, float] = {}
        kind = class_accuracy if self.about["task"] == "classification" else iou
        for which, counts in self.counts.passes.items():
            values = zip(self.counts.class_names, kind(counts), present(counts), strict=True)
            found |= {f"{which}: {name}": 100 * float(one) for name, one, there in values if there}
        return found


def runs_of(folders: Sequence[Path]) -> list[RecordedRun]:
    """Read runs; a folder of several, as a sweep leaves it, stands for all of them."""
    found: dict[Path, None] = {}
    for folder in folders:
        inner = sorted(path.parent for path in folder.glob(f"*/{run_folder.CONFIG}"))
        several = inner and not (folder / run_folder.CONFIG).is_file()
        found |= dict.fromkeys(inner if several else [folder])
    if not found:
        raise ValueError("no folder of a run is given")
    names = short_names([folder.resolve() for folder in found])
    return [RecordedRun.read(folder, one) for folder, one in zip(found, names, strict=True)]


def flat(content: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Values by dotted names; lists and empty mappings are values."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{above}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return found


def read_series(paths: Iterable[Path]) -> dict[str, Series]:
    """Figures over steps; steps that a resumption repeats count once, as it has them."""
    found: dict[str, dict[int, float]] = {}
    for path in sorted(paths, key=lambda one: (len(str(one)), one)):  # version_10 behind version_9
        with named(path, "table of figures"):
            table = csv.DictReader(read_text(path, CSV).splitlines())
            rows = [(int(float(row.pop("step"))), row) for row in table]
            first = min((step for step, _ in rows), default=math.inf)
            for name, values in found.items():
                found[name] = {step: value for step, value in values.items() if step < first}
            for step, row in rows:
                for name, text in row.items():
                    if name and name != "epoch" and text and math.isfinite(float(text)):
                        found.setdefault(name, {})[step] = float(text)
    return {name: sorted(values.items()) for name, values in sorted(found.items()) if values}


def write_report(path: Path, runs: Sequence[RecordedRun]) -> None:
    """Write runs as one page, side by side, which asks no network for anything."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("pcnn.experiment", ".")
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    pages.filters["visible"] = visible
    settings = table(runs, lambda run: run.config)
    content = {
        "names": [run.name for run in runs],
        "simulated": [run.name for run in runs if run.about["source"] == "simulated"],
        "tables": {
            "Runs": table(runs, lambda run: run.about),
            "Figures": table(runs, lambda run: run.figures),
            "Classes [%]": table(runs, lambda run: run.classes),
            "What differs": {key: row for key, row in settings.items() if len(set(row)) > 1},
        },
        "settings": settings,
        "images": {
            "Curves": charts(runs),
            "Confusion": [
                (
                    f"{run.name}: {which}",
                    picture(partial(confusion, counts, run.counts.class_names)),
                )
                for run in runs
                for which, counts in run.counts.passes.items()
            ],
            "Pictures": [
                (f"{run.name}: {one.name}", address("png", one.read_bytes()))
                for run in runs
                for one in run.pictures
            ],
        },
    }
    with whole_file(path) as file:
        file.write(pages.get_template("run_report.html").render(content).encode())


def table(
    runs: Sequence[RecordedRun], entries: Callable[[RecordedRun], Mapping[str, Any]]
) -> dict[str, list[str]]:
    """A row an entry that some run has, with a cell a run."""

    def shown(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        return str(value)

    found = [entries(run) for run in runs]
    keys = dict.fromkeys(key for one in found for key in one)
    return {key: [shown(one.get(key, "-")) for one in found] for key in keys}


def charts(runs: Sequence[RecordedRun]) -> list[tuple[str, str]]:
    """Name and picture of every figure that some run has at two steps or more."""
    found = []
    for name in dict.fromkeys(name for run in runs for name in run.series):
        drawn = [(run, run.series[name]) for run in runs if len(run.series.get(name, ())) > 1]
        if drawn and name.count("/") < 2:
            found.append((name, picture(partial(curves, name, drawn))))
    return found


def curves(name: str, drawn: Sequence[tuple[RecordedRun, Series]], axes: Axes) -> None:
    """Draw a figure over the steps of runs; what falls by orders of magnitude on a log scale."""
    for run, series in drawn:
        few = "." if len(series) < 100 else ""
        axes.plot(*zip(*series, strict=True), few + "-", lw=1, label=plain(run.name))
    least = min(value for _, series in drawn for _, value in series)
    if name.endswith(("loss", "lr")) and least > 0:
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def confusion(counts: Tensor, names: Sequence[str], axes: Axes) -> None:
    """Draw of the points of a class (rows) the share that each class was given."""
    kept = present(counts).nonzero().squeeze(1)
    shares = (counts / counts.sum(1, keepdim=True).clamp(min=1))[kept][:, kept]
    places, labels = range(len(kept)), [plain(names[row]) for row in kept.tolist()]
    axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(places, labels, rotation=90, fontsize="x-small")
    axes.set_yticks(places, labels, fontsize="x-small")
    axes.set_xlabel("predicted")
    for row, column in product(places, places) if len(kept) <= 20 else ():
        value = float(shares[row, column])
        if value >= 0.005:
            colour = "white" if value > 0.6 else "black"
            text = f"{100 * value:.0f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=5, color=colour)


def plain(text: str) -> str:
    """Text that matplotlib draws as it is."""
    return visible(text).replace("$", r"\$").lstrip("_")


def picture(draw: Callable[[Axes], None]) -> str:
    """What is drawn, as an address that holds it."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(5, 3.2), layout="constrained")
    draw(drawn.subplots())
    held = io.BytesIO()
    drawn.savefig(held, format="svg")
    return address("svg+xml", held.getvalue())


def address(kind: str, content: bytes) -> str:
    """An address that holds a picture."""
    return f"data:image/{kind};base64," + base64.b64encode(content).decode()
