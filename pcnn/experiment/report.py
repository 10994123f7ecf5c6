"""metrics.json, and what a run says at its beginning and at its end."""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.table import Table
from torch import Tensor, nn

import pcnn
from pcnn.console import Console
from pcnn.experiment import run_folder
from pcnn.experiment.resume import resume_command
from pcnn.experiment.run_config import allowed
from pcnn.messages import program
from pcnn.metrics import accuracy, class_accuracy, iou_table, mean_class_accuracy

PACKAGES = ("torch", "lightning", "torchmetrics", "hydra-core", "numpy")
PAIRS = "pairs.csv"  # of registration
#: Files of results, and what they are.
FILES = {
    "predictions.png": "picture",
    PAIRS: "pairs",
    run_folder.METRICS: "metrics",
}


def write_metrics(
    folder: Path,
    cfg: DictConfig,
    metrics: Mapping[str, float],
    steps: int,
    checkpoint: str | None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write `metrics.json` whole; a figure that is not finite becomes null."""
    finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    content = {
        "source": cfg.data.source,
        "metrics": finite,
        **{name: cfg[name].name for name in ("dataset", "model", "task", "geometry", "engine")},
        "seed": cfg.seed,
        "steps": steps,
        "checkpoint": checkpoint,
        "revision": revision(),
        "config_sha256": run_folder.sha256(folder / run_folder.CONFIG),
        "versions": versions(),
        **(extra or {}),
    }
    run_folder.write_whole(folder / run_folder.METRICS, json.dumps(content, indent=2) + "\n")


def versions() -> dict[str, str]:
    """Versions of what figures depend on."""
    packages = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "pcnn": pcnn.__version__, **packages}


def revision() -> str | None:
    """Git commit of this package's checkout, `+` appended when files differ; None elsewhere."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None  # no git here, or no commit yet: the package version has to do
    return done.stdout.strip()


def say_begin(console: Console, cfg: DictConfig, folder: Path, task: nn.Module) -> None:
    """Print what is about to run."""
    weights = sum(parameter.numel() for parameter in task.parameters())
    console.say(
        f"{cfg.model.name} ({weights:,} weights) on {cfg.dataset.name}, "
        f"{cfg.task.name}, geometry {cfg.geometry.name}, engine {cfg.engine.name}, "
        f"seed {cfg.seed}"
    )
    console.say(f"run folder: {folder}")
    say_simulated(console, cfg)


def say_simulated(console: Console, cfg: DictConfig) -> None:
    """Print that the data is simulated, when it is."""
    if cfg.data.source != "real":
        told = "scans made by a simulator; the figures say nothing about the benchmark."
        console.say(f"SIMULATED DATA: {cfg.dataset.name} {told}", style="bold yellow")


def say_files(console: Console, folder: Path) -> None:
    """Print where results lie, of those that were written."""
    for name, what in FILES.items():
        if (folder / name).exists():
            console.say(f"{what + ':':<11} {folder / name}")


def say_end(console: Console, cfg: DictConfig, folder: Path, checkpoint: str | None) -> None:
    """Print where the results lie and what to try next."""
    console.say(f"run folder: {folder}")
    say_files(console, folder)
    if cfg.train and checkpoint:
        packages = ",".join(allowed(cfg))
        own = f" allow_targets=[{packages}]" if packages else ""
        console.say("next:")
        evaluates = run_folder.argument("ckpt_path", checkpoint)
        console.say(f"  {program('eval')} {evaluates}{own}")
        console.say(f"  {resume_command(folder)} trainer.max_steps=MORE")
    say_simulated(console, cfg)


def say_tables(
    console: Console, cfg: DictConfig, task: nn.Module, chosen: bool, tests_on_validation: bool
) -> None:
    """Print the last evaluation class by class: a single pass, then the sum of the views if any."""
    confusion: dict[str, Tensor] | None = getattr(task, "confusion", None)
    split = next((one for one in ("test", "val") if one in (confusion or {})), None)
    if split is None or confusion is None:
        if cfg.test and confusion is not None:
            console.print("no labelled cloud was tested, so there are no figures")
        return
    where = f"{cfg.dataset.name} {split}"
    if chosen and (split == "val" or tests_on_validation):
        where += ", best on validation"
    where += "" if cfg.data.source == "real" else ", SIMULATED data"
    names = list(cfg.data.class_names)
    whole = cfg.task.name == "classification"
    table, figure = (accuracy_table, "Accuracy") if whole else (iou_table, "IoU per class")
    voted = confusion.get(f"{split}/tta")
    passes = "" if voted is None else ", single pass"
    console.print(table(confusion[split].cpu(), names, f"{figure}, {where}{passes}"))
    if voted is not None:
        title = f"{figure}, {where}, sum of views (tta={cfg.tta.name})"
        console.print(table(voted.cpu(), names, title))


def accuracy_table(counts: Tensor, class_names: list[str], title: str) -> Table:
    """The share of right answers, class by class, of counts [C, C + 1]."""
    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("class", footer="all\nmean of classes")
    overall, mean = float(accuracy(counts)), float(mean_class_accuracy(counts))
    table.add_column("right %", justify="right", footer=f"{100 * overall:.2f}\n{100 * mean:.2f}")
    table.add_column("clouds", justify="right", footer=f"{int(counts.sum()):,}")
    shares = class_accuracy(counts).tolist()
    for name, share, clouds in zip(class_names, shares, counts.sum(1).tolist(), strict=True):
        right = f"{100 * share:.2f}" if clouds else "absent"
        table.add_row(name, right, f"{clouds:,}", style=None if clouds else "dim")
    return table
