"""S3DIS 6-fold: figures of runs that tested on different areas, joined by their counts.

Every area is tested by a network that was trained on the others. The 6-fold figures come from the
sum of the six confusion matrices, which is not the mean of the six figures
(Pointcept, tools/test_s3dis_6fold.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from omegaconf import DictConfig
from rich.table import Table
from torch import Tensor

from pcnn.datasets.s3dis.classes import AREAS
from pcnn.errors import FileError
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.run_folder import CONFIG, load_config, write_whole
from pcnn.files.bounded import named
from pcnn.files.text import read_json
from pcnn.metrics import accuracy, iou, mean_class_accuracy, miou_official


@dataclass(frozen=True)
class Fold:
    """One run: what it was tested on, and its counts.

    Args:
        folder: of the run.
        areas: that were tested on.
        simulated: whether the rooms were.
        counts: as written, their passes without the split's name: `` (single pass), `/tta`.
    """

    folder: Path
    areas: tuple[int, ...]
    simulated: bool
    counts: Counts


@dataclass(frozen=True)
class SixFold:
    """Joined runs.

    Args:
        folds: sorted by area, no area twice.
        class_names: C names.
        passes: the passes that every run has.
    """

    folds: tuple[Fold, ...]
    class_names: tuple[str, ...]
    passes: tuple[str, ...]

    @property
    def areas(self) -> tuple[int, ...]:
        """Areas that some run tested on."""
        return tuple(area for fold in self.folds for area in fold.areas)

    @property
    def missing(self) -> tuple[int, ...]:
        """Areas that no run tested on."""
        return tuple(area for area in AREAS if area not in self.areas)

    @property
    def simulated(self) -> bool:
        """True for simulated rooms."""
        return any(fold.simulated for fold in self.folds)

    @property
    def name(self) -> str:
        """`6-fold`, or which areas stand for it."""
        return f"areas {_named(self.areas)} of 6" if self.missing else "6-fold"

    def total(self, which: str) -> Tensor:
        """Counts [C, C + 1] of all runs together in one of `passes`."""
        total = self.folds[0].counts.passes[which].clone()
        for fold in self.folds[1:]:
            total += fold.counts.passes[which]
        return total

    def rows(self, which: str) -> list[tuple[str, Tensor]]:
        """Name and counts of every run, and last of all together."""
        single = [(f"Area {_named(fold.areas)}", fold.counts.passes[which]) for fold in self.folds]
        return [*single, (self.name, self.total(which))]


def join(folders: Sequence[Path]) -> SixFold:
    """Read runs of `dataset=s3dis task=segmentation` and join them.

    Raises:
        ConfigError: a folder without counts, another data set or task, an area that two runs
            tested on, real and simulated rooms, or other classes.
    """
    if not folders:
        raise ConfigError("give the folders of the runs, one per test area.")
    folds = sorted((read_fold(folder) for folder in folders), key=lambda fold: fold.areas)
    tested: dict[int, Fold] = {}
    for fold in folds:
        for area in fold.areas:
            other = tested.setdefault(area, fold)
            if other is not fold:
                raise ConfigError(
                    f"Area {area} was tested by {other.folder} and by {fold.folder}; keep one."
                )
        if fold.simulated != folds[0].simulated:
            raise ConfigError(
                f"{fold.folder} and {folds[0].folder}: one has simulated rooms, "
                "the other real ones."
            )
        if fold.counts.class_names != folds[0].counts.class_names:
            raise ConfigError(f"{fold.folder} and {folds[0].folder} count different classes.")
    passes = [p for p in folds[0].counts.passes if all(p in f.counts.passes for f in folds)]
    return SixFold(tuple(folds), folds[0].counts.class_names, tuple(passes))


def read_fold(folder: Path) -> Fold:
    """Read one run: its test pass, or without one the validation.

    Raises:
        ConfigError: as `join`.
    """
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{folder} is not a run folder: {CONFIG} is missing.")
    cfg, counts = load_config(folder), read_counts(folder)
    if cfg.dataset.name != "s3dis" or cfg.task.name != "segmentation":
        raise ConfigError(
            f"{folder}: dataset={cfg.dataset.name} task={cfg.task.name}; 6-fold figures need "
            "dataset=s3dis task=segmentation."
        )
    if cfg.dataset.limit_val is not None:
        raise ConfigError(f"{folder}: dataset.limit_val left out some rooms; evaluate without it.")
    split = "test" if "test" in counts.passes else "val"
    passes = {
        name.removeprefix(split): matrix
        for name, matrix in counts.passes.items()
        if name.partition("/")[0] == split
    }
    if not passes:
        raise ConfigError(f"{folder / CONFUSION} contains neither a test nor a validation.")
    kept = Counts(counts.class_names, passes)
    return Fold(folder, tested_areas(cfg, split), cfg.data.source != "real", kept)


def tested_areas(cfg: DictConfig, split: str) -> tuple[int, ...]:
    """Areas behind the figures of a split."""
    areas = cfg.dataset.val_areas if split == "val" else None
    return tuple(sorted(map(int, cfg.dataset.test_areas if areas is None else areas)))


def figures(counts: Tensor) -> dict[str, float]:
    """mIoU, mean accuracy of the classes and accuracy, as papers on S3DIS print them."""
    return {
        "miou": float(miou_official(counts)),
        "macc": float(mean_class_accuracy(counts)),
        "accuracy": float(accuracy(counts)),
    }


def as_json(joined: SixFold) -> dict[str, object]:
    """Everything, as plain values."""
    return {
        "source": "simulated" if joined.simulated else "real",
        "areas": list(joined.areas),
        "missing": list(joined.missing),
        "runs": [str(fold.folder) for fold in joined.folds],
        "passes": {
            title(which): {
                name: {
                    **figures(counts),
                    "iou": dict(zip(joined.class_names, iou(counts).tolist(), strict=True)),
                }
                for name, counts in joined.rows(which)
            }
            for which in joined.passes
        },
    }


def title(which: str) -> str:
    """Name of a pass: `single pass`, `tta`."""
    return which.lstrip("/") or "single pass"


def table(joined: SixFold, which: str) -> Table:
    """A row for every run and one for all together."""
    simulated = ", SIMULATED data" if joined.simulated else ""
    made = Table(title=f"S3DIS, {title(which)}{simulated}", title_justify="left")
    for heading in ("", "mIoU %", "mAcc %", "accuracy %", "points"):
        made.add_column(heading, justify="right" if heading else "left")
    rows = joined.rows(which)
    for name, counts in rows:
        made.add_row(
            name,
            *(f"{100 * value:.2f}" for value in figures(counts).values()),
            f"{int(counts.sum()):,}",
            style="bold" if counts is rows[-1][1] else None,
        )
    return made


def _named(areas: Sequence[int]) -> str:
    return ", ".join(map(str, areas))


CONFUSION = "confusion.json"


@dataclass(frozen=True)
class Counts:
    """Confusion counts of a run.

    Args:
        class_names: C names.
        passes: [C, C + 1] int64 by pass: `val`, `test`, and with `/tta` those of the summed views;
            rows truth, the last column points without a prediction.
    """

    class_names: tuple[str, ...]
    passes: Mapping[str, Tensor]


def write_counts(
    folder: Path, passes: Mapping[str, Tensor], class_names: Sequence[str]
) -> Path | None:
    """Write the counts of a task's last passes into its run folder; nothing where there are none.

    Args:
        folder: of the run.
        passes: [C, C + 1] integer counts by pass.
        class_names: C names.
    """
    if not passes:
        return None
    content = {
        "class_names": list(class_names),
        "counts": {name: counts.cpu().tolist() for name, counts in passes.items()},
    }
    path = folder / CONFUSION
    write_whole(path, json.dumps(content) + "\n")
    return path


def read_counts(folder: Path) -> Counts:
    """Read the counts of a run.

    Raises:
        ConfigError: the folder holds none.
        FileError: they cannot be read.
    """
    path = folder / CONFUSION
    if not path.is_file():
        raise ConfigError(
            f"{folder} holds no {CONFUSION}: give the folder of a finished train.py or eval.py run."
        )
    content = read_json(path)
    with named(path, "file of counts"):
        names = tuple(map(str, content["class_names"]))
        passes = {
            name: torch.tensor(counts, dtype=torch.int64)
            for name, counts in content["counts"].items()
        }
        for name, counts in passes.items():
            if counts.shape != (len(names), len(names) + 1) or int(counts.min()) < 0:
                raise FileError(
                    path,
                    f"{name[:40]} holds {list(counts.shape)} counts for {len(names)} classes; run "
                    "the evaluation again.",
                )
    return Counts(names, passes)
