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
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key in MAY_CHANGE:
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
        finished=is_finished(folder, saved),
    )


def is_finished(folder: Path, cfg: DictConfig) -> bool:
    """Whether the run wrote its metrics and was not made longer since."""
    path = folder / run_folder.METRICS
    if not path.is_file():
        return False
    recorded = run_folder.load_config(folder)
    if any(OmegaConf.select(recorded, key) != OmegaConf.select(cfg, key) for key in MAY_CHANGE):
        return int(json.loads(path.read_text())["steps"]) == cfg.trainer.max_steps
    return True
