"""metrics.json, and what a run says at its end."""

from __future__ import annotations

import json
import math
import platform
import shlex
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch import nn

import pcnn
from pcnn.console import Console
from pcnn.experiment import run_folder
from pcnn.experiment.resume import resume_command
from pcnn.experiment.run_config import allowed
from pcnn.messages import program

PACKAGES = ("torch", "lightning", "torchmetrics", "hydra-core", "numpy")
PICTURE = "predictions.png"
PAIRS, CURVES = "pairs.csv", "recall.png"  # of registration


def write_metrics(
    folder: Path,
    cfg: DictConfig,
    metrics: Mapping[str, float],
    steps: int,
    checkpoint: str | None,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Write `metrics.json` whole; a figure that is not finite becomes null."""
    content = {
        "source": cfg.data.source,
        "metrics": {
            name: value if math.isfinite(value) else None for name, value in metrics.items()
        },
        "dataset": cfg.dataset.name,
        "model": cfg.model.name,
        "task": cfg.task.name,
        "geometry": cfg.geometry.name,
        "engine": cfg.engine.name,
        "seed": cfg.seed,
        "steps": steps,
        "checkpoint": checkpoint,
        "revision": revision(),
        "config_sha256": run_folder.sha256(folder / run_folder.CONFIG),
        "versions": versions(),
        **(extra or {}),
    }
    path = folder / run_folder.METRICS
    run_folder.write_whole(path, json.dumps(content, indent=2) + "\n")
    return path


def versions() -> dict[str, str]:
    """Versions of what figures depend on."""
    packages = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "pcnn": pcnn.__version__, **packages}


def revision() -> str | None:
    """Git commit of this package's checkout, `+` appended when files differ; None elsewhere."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = git(root, "rev-parse", "HEAD")
        changed = git(root, "status", "--porcelain", "--untracked-files=no")
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None  # no git here, or no commit yet: the package version has to do
    return commit + ("+" if changed else "")


def git(root: Path, *arguments: str) -> str:
    """Output of a git command."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def simulated_notice(cfg: DictConfig) -> str | None:
    """One line that says the data is simulated, or None when it is real."""
    if cfg.data.source == "real":
        return None
    return (
        f"SIMULATED DATA: {cfg.dataset.name} scans made by a simulator; "
        "the figures say nothing about the benchmark."
    )


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
    notice = simulated_notice(cfg)
    if notice:
        console.say(notice, style="bold yellow")


def say_unmeasured(console: Console) -> None:
    """Print that a training has no figures."""
    console.say(
        "nothing was validated or tested, so no figure was measured: "
        "trainer.limit_val_batches=0, or a data set without validation clouds",
        style="bold yellow",
    )


def files_of(folder: Path) -> list[str]:
    """Where results lie, a line each, of those that were written."""
    named = {
        "picture": PICTURE,
        "pairs": PAIRS,
        "curves": CURVES,
        "metrics": run_folder.METRICS,
    }
    return [
        f"{what + ':':<11} {folder / name}"
        for what, name in named.items()
        if (folder / name).exists()
    ]


def say_files(console: Console, folder: Path) -> None:
    """Print where results lie."""
    for line in files_of(folder):
        console.say(line)


def try_it(cfg: DictConfig, checkpoint: str) -> list[str]:
    """The command, if any, that applies a checkpoint to clouds of the user's."""
    file = shlex.quote(checkpoint)
    own = "".join(f" --allow-targets {package}" for package in allowed(cfg))
    commands = {
        "registration": f"  pcnn register SOURCE TARGET --model {file}{own}",
        "segmentation": f"  pcnn predict {file} FILE_OR_FOLDER{own}",
    }
    return [commands[cfg.task.name]] if cfg.task.name in commands else []


def tested(cfg: DictConfig) -> str:
    """The data set that an evaluation has to name, where that of the training has no protocol."""
    return " dataset=threedmatch" if cfg.data.get("benchmark") == "cells" else ""


def longer(cfg: DictConfig) -> str:
    """The argument that makes a run twice as long, by whichever of its limits ends it."""
    steps, epochs = cfg.trainer.max_steps, cfg.trainer.max_epochs
    if steps and steps > 0:
        return f"trainer.max_steps={2 * steps}"
    if epochs and epochs > 0:
        return f"trainer.max_epochs={2 * epochs}"
    return "trainer.max_time=DD:HH:MM:SS"


def say_end(console: Console, cfg: DictConfig, folder: Path, checkpoint: str | None) -> None:
    """Print where the results lie and what to try next."""
    lines = [f"run folder: {folder}", *files_of(folder)]
    if cfg.train and checkpoint:
        own = f" allow_targets=[{','.join(allowed(cfg))}]" if cfg.allow_targets else ""
        found = run_folder.argument("ckpt_path", checkpoint)
        lines += [
            "next:",
            f"  {program('eval')} {found}{tested(cfg)}{own}",
            *try_it(cfg, checkpoint),
            f"  {resume_command(folder)} {longer(cfg)}",
        ]
    if cfg.data.source != "real":
        roots = [f"sources.{name}.sets.root" for name in cfg.dataset.get("sources", {})] or ["root"]
        folders = " ".join(f"dataset.{name}=FOLDER" for name in roots)
        lines.append(f"  {program('train')} dataset={cfg.dataset.name} {folders}  (real data)")
    for line in lines:
        console.say(line)
    say_simulated(console, cfg)
