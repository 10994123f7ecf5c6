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
from torch import Tensor, nn

import pcnn
from pcnn.console import Console
from pcnn.experiment import run_folder
from pcnn.experiment.resume import resume_command
from pcnn.experiment.run_config import allowed
from pcnn.metrics import iou_table

PACKAGES = ("torch", "lightning", "torchmetrics", "hydra-core", "numpy")
PAIRS = "pairs.csv"  # of registration


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


def say_end(console: Console, cfg: DictConfig, folder: Path, checkpoint: str | None) -> None:
    """Print where the figures lie and what to try next."""
    console.say(f"figures: {folder / run_folder.METRICS}")
    if cfg.train and checkpoint:
        packages = ",".join(allowed(cfg))
        own = f" allow_targets=[{packages}]" if packages else ""
        evaluates = run_folder.argument("ckpt_path", checkpoint)
        console.say(f"next:\n  pcnn eval {evaluates}{own}")
        console.say(f"  {resume_command(folder)} trainer.max_steps=MORE")
    say_simulated(console, cfg)


def say_table(console: Console, cfg: DictConfig, task: nn.Module) -> None:
    """Print the last segmentation class by class, by the sum of the views if there are any."""
    passes: dict[str, Tensor] = getattr(task, "confusion", {})
    which = next((one for one in ("test/tta", "test", "val/tta", "val") if one in passes), None)
    if which is not None and cfg.task.name == "segmentation":
        simulated = "" if cfg.data.source == "real" else ", SIMULATED data"
        title = f"IoU per class, {cfg.dataset.name} {which}{simulated}"
        console.print(iou_table(passes[which].cpu(), list(cfg.data.class_names), title))
