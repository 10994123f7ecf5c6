"""Continue an interrupted run exactly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from pcnn.experiment import run_folder
from pcnn.experiment.errors import ConfigError, listed

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
        cfg: composed configuration; only `resume` and the keys of `MAY_CHANGE` are read.
        overrides: the command line, to see which keys were given.

    Raises:
        ConfigError: there is no such run, or other keys were given.
    """
    folder = Path(cfg.resume)
    saved = run_folder.load_config(folder)
    changed = False
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key in MAY_CHANGE:
            changed |= OmegaConf.select(saved, key) != OmegaConf.select(cfg, key)
            OmegaConf.update(saved, key, OmegaConf.select(cfg, key))
        elif key != "resume" and not key.startswith("hydra."):
            raise ConfigError(
                f"resume continues a run as it was; {key} cannot be changed.\n"
                f"possible besides resume: {listed(MAY_CHANGE)}"
            )
    checkpoint = folder / run_folder.LAST
    return Continuation(
        cfg=saved,
        folder=folder,
        checkpoint=checkpoint if checkpoint.is_file() else None,
        finished=not changed and is_finished(folder),
    )


def is_finished(folder: Path) -> bool:
    """Whether metrics.json was written for the configuration as it is: it is a run's last file."""
    path = folder / run_folder.METRICS
    if not path.is_file():
        return False
    recorded = json.loads(path.read_text())["config_sha256"]
    return bool(recorded == run_folder.sha256(folder / run_folder.CONFIG))
