"""Continue an interrupted run exactly."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pcnn.checkpoints import RunCheckpoint
from pcnn.config.values import FOLDERS, LOCAL, selected, values_in
from pcnn.errors import ConfigError, FileError
from pcnn.experiment import run_folder
from pcnn.experiment.stored_options import (
    BESIDE,
    NAMED,
    TEXTS,
    command_words,
    keys_of,
    repeated,
    with_stored,
)

#: Value of `resume` that goes on with the run of `hydra.run.dir`, or begins it.
AUTO = "auto"
# a run may be made longer; anything else would make it another run
LONGER = ("trainer.max_steps", "trainer.max_epochs", "trainer.max_time")
#: Keys that the command line may give otherwise than the run has them.
MAY_CHANGE = (
    *(*LONGER, "dataset.num_workers", "resume", "allow_targets"),
    "tags",  # a run fills some in by itself
    *(f"dataset.{key}" for key in (*LOCAL, *FOLDERS)),
)


@dataclass(frozen=True)
class Run:
    """A run to do, or to go on with."""

    cfg: DictConfig
    folder: Path
    resumed: bool = False
    checkpoint: Path | None = None  # that it goes on from; None: from its beginning
    steps: int = 0  # optimiser steps behind it
    finished: bool = False


def has_begun(folder: Path) -> bool:
    """True where a run folder holds a run to go on with."""
    return (folder / run_folder.CONFIG).is_file() or (folder / run_folder.LAST).is_file()


def continuation(cfg: DictConfig, overrides: Sequence[str], folder: Path | None = None) -> Run:
    """Read the run of a folder: `cfg`, with the network and its training as they were stored.

    With ``resume=auto`` it is the folder of this run, which the same command line began.
    """
    folder = Path(cfg.resume) if folder is None else folder
    check_links(folder)
    saved, given = run_folder.load_config(folder), keys_of(overrides)
    begun = saved["words"] if isinstance(saved.get("words"), list) else []
    for key in sorted(keys_of([word for word in overrides if word not in begun])):
        _check_given(key, cfg, saved)
    merged = with_stored(cfg, saved, given, folder / run_folder.CONFIG)
    for key, theirs in values_in({group: saved.get(group) for group in BESIDE}, ""):
        ours = OmegaConf.select(merged, key, default=theirs)
        numbers = isinstance(ours, int | float | None) and isinstance(theirs, int | float | None)
        if numbers and ours != theirs and key not in given:  # files of ours have changed since
            raise ConfigError(key, f"the run has {theirs}, the configuration now {ours}: give one")
    changed = {key for key in given if OmegaConf.select(merged, key) != selected(saved, key)}
    last = folder / run_folder.LAST
    found = RunCheckpoint.read(last) if last.is_file() else None
    return Run(
        cfg=merged,
        folder=folder,
        resumed=True,
        checkpoint=None if found is None else last,
        steps=0 if found is None else found.steps,
        finished=not changed & set(LONGER) and is_finished(folder),
    )


def _check_given(key: str, cfg: DictConfig, saved: Mapping[str, Any]) -> None:
    """Refuse a key that would make the run another one."""
    group = key.partition(".")[0]
    ours, theirs = OmegaConf.select(cfg, key), selected(saved, key)
    if key in NAMED:
        ours, theirs = cfg[key].get("name"), selected(saved, f"{key}.name")
    free = key in MAY_CHANGE or key in BESIDE or group in ("callbacks", "logger", "hydra")
    free |= group == "trainer" and key not in TEXTS and not isinstance(ours, int | float | None)
    if not free and ours != theirs:
        rule = f"the run has {str(theirs)[:80]} and goes on as it was; it may get longer"
        raise ConfigError(key, rule)


def check_links(folder: Path) -> None:
    """Refuse a run folder in which a link leads out of it: the run writes below it alone."""
    root = folder.resolve()
    for path in folder.rglob("*"):
        try:
            inside = not path.is_symlink() or path.resolve().is_relative_to(root)
            # W&B links its log from its own cache, and writes a new one
            inside |= path.relative_to(folder).parts[0] == "wandb" and path.is_file()
        except (OSError, RuntimeError):  # a link to itself
            inside = False
        if not inside:
            raise FileError(path, "the link leads out of the run folder; it is not followed")


def is_finished(folder: Path) -> bool:
    """True where metrics.json, a run's last file, belongs to the configuration as it is."""
    config = folder / run_folder.CONFIG
    if not config.is_file() or not (folder / run_folder.METRICS).is_file():
        return False
    recorded = run_folder.load_metrics(folder)["config_sha256"]
    return bool(recorded == run_folder.sha256(config))


def resume_command(folder: Path) -> str:
    """The command that goes on with a run, with the words of this one that no file keeps."""
    words = "".join(f" {shlex.quote(word)}" for word in repeated(command_words()))
    return f"pcnn train {run_folder.argument('resume', folder)}{words}"
