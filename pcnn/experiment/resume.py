"""Continue an interrupted run exactly."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pcnn.callbacks.other_devices import samples_a_batch
from pcnn.checkpoints import CheckpointError, RunCheckpoint
from pcnn.checkpoints.loaded_config import values_in
from pcnn.experiment import run_folder
from pcnn.experiment.devices import ANY_NUMBER
from pcnn.experiment.errors import ConfigError, listed

#: Value of `resume` that goes on with the run of `hydra.run.dir`, or begins it.
AUTO = "auto"
# a run may be made longer; anything else would make it another run
LONGER = ("trainer.max_steps", "trainer.max_epochs", "trainer.max_time")
# the devices decide who computes which part of a step, not what a step is
DEVICES = ("trainer.devices", "trainer.num_nodes", "dataset.num_workers")
MAY_CHANGE = (*LONGER, *DEVICES)
#: Keys that a run fills in by itself.
FILLED = ("dataset.batch_size", "trainer.accumulate_grad_batches", "global_batch_size", "tags")


@dataclass(frozen=True)
class Continuation:
    """A run to go on with."""

    cfg: DictConfig
    folder: Path
    checkpoint: Path | None  # None: it was stopped before its first checkpoint
    steps: int  # optimiser steps behind it
    finished: bool
    samples: int | None  # of a step so far, where the devices may be others; None: as configured


def has_begun(folder: Path) -> bool:
    """True where a run folder holds a run to go on with."""
    return (folder / run_folder.CONFIG).is_file() or (folder / run_folder.LAST).is_file()


def same_run(cfg: DictConfig, folder: Path, overrides: Sequence[str]) -> Continuation:
    """Read the run of a folder, which the same command line began (``resume=auto``).

    Args:
        cfg: composed configuration.
        folder: of the run.
        overrides: the command line.

    Raises:
        ConfigError: the command line asks for another value of a key.
    """
    saved, kept = run_folder.load_config(folder), []
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key in (*MAY_CHANGE, "allow_targets"):
            kept.append(override)
            continue
        ours, theirs = (OmegaConf.select(one, key) for one in (cfg, saved))
        if key.startswith(("hydra.", "resume")) or key in FILLED:
            continue
        if OmegaConf.is_config(ours) or OmegaConf.is_config(theirs):  # a group
            continue
        if key.startswith(WRITING):
            kept.append(override)
        if ours != theirs and "/" not in key:  # a slash is of a group
            raise ConfigError(
                f"resume=auto: {folder} holds a run with {key}={theirs}, not {ours}.\n"
                "possible: another hydra.run.dir for another run, or the command that began this"
            )
    return continuation(cfg, kept, folder)


def continuation(
    cfg: DictConfig, overrides: Sequence[str], folder: Path | None = None
) -> Continuation:
    """Read the run of a folder.

    Args:
        cfg: composed configuration; only `allow_targets`, the keys of `MAY_CHANGE` and
            paths that the command line repeats are read.
        overrides: the command line, to see which keys were given.
        folder: of the run; None: `cfg.resume` names it.

    Raises:
        ConfigError: there is no such run, or other keys were given.
    """
    folder = Path(cfg.resume) if folder is None else folder
    saved = run_folder.load_config(folder)
    changed, confirmed = False, set()
    other_devices = str(saved.trainer.get("devices")) in ANY_NUMBER  # those of this machine
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key == "allow_targets":
            saved.allow_targets = cfg.allow_targets  # a file has none
        elif key in MAY_CHANGE:
            other = OmegaConf.select(saved, key) != OmegaConf.select(cfg, key)
            changed |= other and key in LONGER
            other_devices |= key in ("trainer.devices", "trainer.num_nodes")
            OmegaConf.update(saved, key, OmegaConf.select(cfg, key))
        elif key.startswith(WRITING) and OmegaConf.select(cfg, key) == OmegaConf.select(saved, key):
            confirmed.add(key)
        elif key != "resume" and not key.startswith("hydra."):
            raise ConfigError(
                f"resume continues a run as it was; {key} cannot be changed.\n"
                f"possible besides resume: {listed((*MAY_CHANGE, 'allow_targets'))}"
            )
    path = folder / run_folder.CONFIG
    check_writing(saved, confirmed, path)
    check_data_folders(saved.dataset, path)
    last = whole_checkpoint(folder)
    return Continuation(
        cfg=saved,
        folder=folder,
        checkpoint=None if last is None else last.path,
        steps=0 if last is None else last.steps,
        finished=not changed and is_finished(folder),
        samples=samples_of_a_step(saved, last) if other_devices else None,
    )


def samples_of_a_step(saved: DictConfig, last: RunCheckpoint | None) -> int | None:
    """Samples of an optimiser step of a run, over all its devices; None where nothing tells."""
    if saved.get("global_batch_size") is not None:
        return int(saved.global_batch_size)
    batch = None if last is None else samples_a_batch(last.content)
    return None if batch is None else batch * int(saved.trainer.accumulate_grad_batches)


def is_finished(folder: Path) -> bool:
    """True where metrics.json, a run's last file, belongs to the configuration as it is."""
    path = folder / run_folder.METRICS
    if not path.is_file():
        return False
    config = folder / run_folder.CONFIG
    recorded = run_folder.load_metrics(folder)["config_sha256"]
    return config.is_file() and bool(recorded == run_folder.sha256(config))


def whole_checkpoint(folder: Path) -> RunCheckpoint | None:
    """The last checkpoint of a run; None where it was stopped before its first one.

    Raises:
        ConfigError: it is damaged; says from where the run can go on.
    """
    last, best = folder / run_folder.LAST, folder / run_folder.BEST
    if not last.is_file():
        return None
    try:
        found = RunCheckpoint.read(last)
        _ = found.steps  # told by every checkpoint of a run
    except CheckpointError as error:
        try:
            steps = RunCheckpoint.read(best).steps
        except (CheckpointError, FileNotFoundError):
            way = f"rm {shlex.quote(str(last))}: the same command then starts from the beginning"
        else:
            copy = f"cp {shlex.quote(str(best))} {shlex.quote(str(last))}"
            way = f"{copy}: the same command then goes on behind step {steps}"
        raise ConfigError(f"{error}.\npossible: {way}") from error
    return found


#: Groups whose objects write files or send figures.
WRITING = ("callbacks", "logger", "trainer")


def check_writing(saved: DictConfig, confirmed: Collection[str], path: object) -> None:
    """Check that callbacks, loggers and the trainer of a stored run name no path elsewhere.

    Args:
        saved: configuration of the run.
        confirmed: keys that the command line gives once more, with the same values.
        path: the file, for messages.

    Raises:
        ConfigError: names the key of a path outside the run folder, or of settings that a logger
            would pass on.
    """
    for group in WRITING:
        content: Any = OmegaConf.to_container(saved[group], resolve=False) if group in saved else {}
        for key, value in values_in(content, group):
            depth = key.count(".")
            if key in confirmed:
                continue
            if group == "logger" and isinstance(value, Mapping) and depth > 1:
                # W&B's settings name servers and programs
                raise ConfigError(
                    f"{path}: {key} is refused: a stored logger takes plain values alone.\n"
                    "possible: a new run, with these settings on its command line"
                )
            if isinstance(value, str) and leads_away(value):
                raise ConfigError(
                    f"{path}: {key}={value[:80]} is refused: it leads out of the run folder.\n"
                    f"possible: {key}={value[:80]} on the command line too, if it is meant"
                )


def check_data_folders(dataset: Any, path: object) -> None:
    """Check that the folder for caches and simulated sets lies below here, or exists already.

    Args:
        dataset: group of a stored configuration.
        path: the file, for messages.

    Raises:
        ConfigError: names the folder.
    """
    for key, folder in values_in(OmegaConf.to_container(dataset, resolve=True), "dataset"):
        if not key.endswith(".data_dir") or not isinstance(folder, str):
            continue
        if leads_away(folder) and not Path(folder).is_dir():
            raise ConfigError(
                f"{path}: dataset.data_dir={folder[:80]} is no folder of this machine.\n"
                "possible: make it, or dataset.data_dir=FOLDER where a checkpoint is evaluated"
            )


def leads_away(text: str) -> bool:
    """True for a path that is absolute, climbs, or is a home folder, a variable or a URL."""
    return (
        text.startswith(("/", "~", "\\"))
        or ".." in Path(text).parts
        or "$" in text
        or "://" in text
    )
