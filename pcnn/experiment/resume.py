"""Continue an interrupted run exactly."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from pcnn.callbacks import CheckpointError
from pcnn.experiment import run_folder
from pcnn.experiment.errors import ConfigError, listed
from pcnn.experiment.stored_paths import WRITING, check_data_folders, check_writing
from pcnn.experiment.weights import steps_of

# a run may be made longer; anything else would make it another run
MAY_CHANGE = ("trainer.max_steps", "trainer.max_epochs", "trainer.max_time")


@dataclass(frozen=True)
class Continuation:
    """A run to go on with."""

    cfg: DictConfig
    folder: Path
    checkpoint: Path | None  # None: it was stopped before its first checkpoint
    finished: bool


def continuation(cfg: DictConfig, overrides: list[str]) -> Continuation:
    """Read the run that `cfg.resume` names.

    Args:
        cfg: composed configuration; only `resume`, `allow_targets`, the keys of `MAY_CHANGE` and
            paths that the command line repeats are read.
        overrides: the command line, to see which keys were given.

    Raises:
        ConfigError: there is no such run, or other keys were given.
    """
    folder = Path(cfg.resume)
    saved = run_folder.load_config(folder)
    changed, confirmed = False, set()
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key == "allow_targets":
            saved.allow_targets = cfg.allow_targets  # a file has none
        elif key in MAY_CHANGE:
            changed |= OmegaConf.select(saved, key) != OmegaConf.select(cfg, key)
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
    return Continuation(
        cfg=saved,
        folder=folder,
        checkpoint=whole_checkpoint(folder),
        finished=not changed and is_finished(folder),
    )


def is_finished(folder: Path) -> bool:
    """Whether metrics.json was written for the configuration as it is: it is a run's last file."""
    path = folder / run_folder.METRICS
    if not path.is_file():
        return False
    config = folder / run_folder.CONFIG
    recorded = run_folder.load_metrics(folder)["config_sha256"]
    return config.is_file() and bool(recorded == run_folder.sha256(config))


def whole_checkpoint(folder: Path) -> Path | None:
    """The last checkpoint of a run; None where it was stopped before its first one.

    Raises:
        ConfigError: it is damaged; says from where the run can go on.
    """
    last, best = folder / run_folder.LAST, folder / run_folder.BEST
    if not last.is_file():
        return None
    try:
        steps_of(last)
    except CheckpointError as error:
        try:
            steps = steps_of(best)
        except (CheckpointError, FileNotFoundError):
            way = f"rm {shlex.quote(str(last))}: the same command then starts from the beginning"
        else:
            copy = f"cp {shlex.quote(str(best))} {shlex.quote(str(last))}"
            way = f"{copy}: the same command then goes on behind step {steps}"
        raise ConfigError(f"{error}.\npossible: {way}") from error
    return last
