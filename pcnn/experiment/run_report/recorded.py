"""The content of a run folder: configuration, curves, figures, counts and pictures."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pcnn.errors import FileError
from pcnn.experiment import run_folder
from pcnn.experiment.counts_file import CONFUSION, Counts, read_counts
from pcnn.experiment.errors import ConfigError
from pcnn.files.bounded import named
from pcnn.files.text import read_text, read_yaml

#: Steps and values of a figure.
Series = list[tuple[int, float]]

#: Columns of a CSV file that are no figures.
_NO_FIGURES = ("step", "epoch")

#: Largest metrics.csv [bytes].
_CSV = 1 << 28


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A run as its folder tells it.

    Args:
        name: what it is called.
        folder: its folder.
        config: resolved values by dotted name.
        metrics: content of metrics.json; empty where the run is not finished.
        series: figures over steps, by name, in rising order of steps.
        counts: of the final confusion, or None.
        pictures: PNG files.
        views: pages of `pcnn.visualize.view`.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    counts: Counts | None = None
    pictures: Sequence[Path] = ()
    views: Sequence[Path] = ()

    @classmethod
    def read(cls, folder: Path, name: str | None = None) -> RecordedRun:
        """Read what a folder holds, of a finished run or of one that goes on.

        Args:
            folder: of `train.py` or `eval.py`.
            name: what it is called; the name of the folder unless given.

        Raises:
            ConfigError: no run is there.
            FileError: one of its files is damaged.
        """
        path = folder / run_folder.CONFIG
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; give the folder of a run")
        if not path.is_file():
            raise ConfigError(
                f"{folder}: no run of train.py or eval.py ({run_folder.CONFIG} is missing)"
            )
        content = read_yaml(path)
        if not isinstance(content, dict):
            raise FileError(path, "it does not hold a configuration")
        finished = (folder / run_folder.METRICS).is_file()
        series = read_series(sorted(folder.glob("*/version_*/metrics.csv"), key=_version))
        found = cls(
            name or folder.name,
            folder,
            flat(content),
            run_folder.load_metrics(folder) if finished else {},
            series,
            read_counts(folder) if (folder / CONFUSION).is_file() else None,
            _found(folder, ".png"),
            _found(folder, ".html"),
        )
        return replace(found, series=without_final(series, found.figures))

    @property
    def figures(self) -> dict[str, float]:
        """The final figures, by name."""
        found = self.metrics.get("metrics", {})
        return {
            str(name): float(value)
            for name, value in (found.items() if isinstance(found, dict) else ())
            if isinstance(value, int | float)
        }


def runs_of(folders: Sequence[Path]) -> list[RecordedRun]:
    """Read runs; a folder of several runs, as a sweep leaves it, stands for all of them.

    Runs are named by their folders, by as many parts of the path as tell them apart.

    Raises:
        ConfigError: a folder that holds no run.
        FileError: a file of a run is damaged.
    """
    found: list[Path] = []
    for folder in folders:
        inner = sorted(path.parent for path in folder.glob(f"*/{run_folder.CONFIG}"))
        several = inner and not (folder / run_folder.CONFIG).is_file()
        found += inner if several else [folder]
    found = list(dict.fromkeys(found))
    parts = [folder.resolve().parts for folder in found]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(own[-depth:]) for own in parts]
        if len(set(names)) == len(names):
            break
    return [RecordedRun.read(folder, name) for folder, name in zip(found, names, strict=True)]


def flat(content: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Values by dotted names; lists and empty mappings are values."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{above}{key}"
        if isinstance(value, dict) and value:
            found |= flat(value, f"{name}.")
        else:
            found[name] = value
    return found


def read_series(paths: Sequence[Path]) -> dict[str, Series]:
    """Figures over steps, of the files that a run and its resumptions wrote.

    A resumption repeats the steps behind the checkpoint that it begins with: then the later file
    counts.

    Raises:
        FileError: no table of numbers.
    """
    found: dict[str, dict[int, float]] = {}
    for path in paths:
        own = _table(path)
        first = min((step for values in own.values() for step in values), default=None)
        if first is None:
            continue
        for name, values in found.items():
            found[name] = {step: value for step, value in values.items() if step < first}
        for name, values in own.items():
            found.setdefault(name, {}).update(values)
    return {name: sorted(values.items()) for name, values in sorted(found.items()) if values}


def without_final(series: Mapping[str, Series], figures: Mapping[str, float]) -> dict[str, Series]:
    """Series without the evaluation of the best checkpoint, which follows the last step.

    It is of an earlier step: a curve through it would jump at its end.

    Args:
        series: by name.
        figures: the final figures, which are those of that evaluation.
    """
    found = {}
    for name, values in series.items():
        final = len(values) > 1 and name in figures and values[-1][0] == values[-2][0] + 1
        again = final and math.isclose(values[-1][1], figures[name], rel_tol=1e-5)
        found[name] = values[:-1] if again else values
    return found


def _table(path: Path) -> dict[str, dict[int, float]]:
    with named(path, "table of figures"):
        rows = csv.DictReader(read_text(path, _CSV).splitlines())
        found: dict[str, dict[int, float]] = {}
        for number, row in enumerate(rows, 2):
            if not row.get("step"):
                raise FileError(path, f"line {number}: no step")
            step = int(float(row["step"]))
            for name, text in row.items():
                if name is None or name in _NO_FIGURES or not text:
                    continue
                value = float(text)
                if math.isfinite(value):
                    found.setdefault(name, {})[step] = value
        return found


def _found(folder: Path, suffix: str) -> list[Path]:
    """Files of a run: its own, then those of its best and worst pairs."""
    return [
        path
        for place in (folder, folder / "pictures")
        for path in sorted(place.glob(f"*{suffix}"))
        if path.is_file()
    ]


def _version(path: Path) -> tuple[str, int]:
    number = path.parent.name.removeprefix("version_")
    return str(path.parents[1]), int(number) if number.isdecimal() else -1
