"""Runs as one page: what they are, figures, curves, confusion, pictures and configuration."""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcnn.errors import FileError
from pcnn.experiment import run_folder
from pcnn.files.bounded import named, read_text, read_yaml
from pcnn.files.whole_file import whole_file
from pcnn.messages import short_names, visible
from pcnn.metrics.iou import present

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

#: Largest metrics.csv [bytes].
CSV = 1 << 28

Series = list[tuple[int, float]]


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A run as its folder tells it, finished or not."""

    name: str
    about: Mapping[str, Any]  # which run it is
    config: Mapping[str, Any]  # by dotted name
    figures: Mapping[str, Any]
    series: Mapping[str, Series]  # figures over steps
    counts: tuple[Sequence[str], Mapping[str, Tensor]]  # names of classes; [C, C + 1] by stage
    pictures: Sequence[Path]

    @classmethod
    def read(cls, folder: Path, name: str) -> RecordedRun:
        """Read what a folder of `train.py` or `eval.py` holds."""
        path = folder / run_folder.CONFIG
        if not path.is_file():
            raise FileError(path, "no such file; give the folder of a run")
        content = read_yaml(path)
        if not isinstance(content, dict):
            raise FileError(path, "holds no configuration")
        series = read_series(folder.glob("*/version_*/metrics.csv"))
        last = max((values[-1][0] for values in series.values()), default=0)
        finished = (folder / run_folder.METRICS).is_file()
        metrics = run_folder.load_metrics(folder) if finished else {}
        known = {"steps": f"not finished, {last} so far", **metrics, "folder": folder}
        counted = (folder / run_folder.CONFUSION).is_file()
        return cls(
            name,
            {key: value for key, value in known.items() if not isinstance(value, dict)},
            flat(content),
            known.get("metrics") or {},
            series,
            run_folder.read_counts(folder) if counted else ((), {}),
            sorted(folder.glob("*.png")),
        )


def runs_of(folders: Sequence[Path]) -> list[RecordedRun]:
    """Read runs; a folder of several, as a sweep leaves it, stands for all of them."""
    found: dict[Path, None] = {}
    for folder in folders:
        inner = sorted(path.parent for path in folder.glob(f"*/{run_folder.CONFIG}"))
        several = inner and not (folder / run_folder.CONFIG).is_file()
        found |= dict.fromkeys(inner if several else [folder])
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
    settings = table([run.config for run in runs])
    content = {
        "names": [run.name for run in runs],
        "simulated": [run.name for run in runs if run.about.get("source") == "simulated"],
        "tables": {
            "Runs": table([run.about for run in runs]),
            "Figures": table([run.figures for run in runs]),
            "What differs": {key: row for key, row in settings.items() if len(set(row)) > 1},
        },
        "settings": settings,
        "images": {
            "Curves": charts(runs),
            "Confusion": [
                (f"{run.name}: {which}", confusion(counts, run.counts[0]))
                for run in runs
                for which, counts in run.counts[1].items()
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


def table(columns: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """A row an entry that some run has, with a cell a run."""
    keys = dict.fromkeys(key for one in columns for key in one)
    values = {key: [one.get(key, "-") for one in columns] for key in keys}
    return {
        key: [f"{one:.6g}" if isinstance(one, float) else str(one) for one in row]
        for key, row in values.items()
    }


def charts(runs: Sequence[RecordedRun]) -> list[tuple[str, str]]:
    """Figures of all classes that some run has at two steps or more, over the steps."""
    found = []
    for name in dict.fromkeys(name for run in runs for name in run.series):
        drawn = {run.name: run.series[name] for run in runs if len(run.series.get(name, ())) > 1}
        if not drawn or name.count("/") > 1:
            continue
        figure, axes = drawing()
        for run, series in drawn.items():
            axes.plot(*zip(*series, strict=True), ".-", lw=1, ms=2, label=plain(run))
        least = min(value for series in drawn.values() for _, value in series)
        if name.endswith(("loss", "lr")) and least > 0:  # fall by orders of magnitude
            axes.set_yscale("log")
        axes.set_xlabel("step")
        axes.legend(fontsize="small")
        found.append((name, picture(figure)))
    return found


def confusion(counts: Tensor, names: Sequence[str]) -> str:
    """Of the points of a class (rows) the share that each class was given."""
    kept = present(counts).nonzero().squeeze(1)
    shares = (counts / counts.sum(1, keepdim=True).clamp(min=1))[kept][:, kept]
    labels = [plain(names[row]) for row in kept.tolist()]
    figure, axes = drawing()
    figure.colorbar(axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1))
    axes.set_xticks(range(len(kept)), labels, rotation=90, fontsize="x-small")
    axes.set_yticks(range(len(kept)), labels, fontsize="x-small")
    axes.set_xlabel("predicted")
    return picture(figure)


def drawing() -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    return figure, figure.subplots()


def plain(text: str) -> str:
    """Text that matplotlib draws as it is."""
    return visible(text).replace("$", r"\$").lstrip("_")


def picture(figure: Figure) -> str:
    """What is drawn, as an address that holds it."""
    held = io.BytesIO()
    figure.savefig(held, format="svg")
    return address("svg+xml", held.getvalue())


def address(kind: str, content: bytes) -> str:
    """An address that holds a picture."""
    return f"data:image/{kind};base64," + base64.b64encode(content).decode()
