"""The configuration of `train.py`, for commands that take its options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from omegaconf import DictConfig


def composed(overrides: list[str], conf: Path) -> DictConfig:
    """The configuration of train.py for these overrides, checked.

    Raises:
        typer.BadParameter: no configurations are there.
        ConfigError: they cannot be run.
    """
    from hydra import compose, initialize_config_dir

    from pcnn.experiment.check import checked
    from pcnn.experiment.targets import check_allowed

    if not (conf / "train.yaml").is_file():
        raise typer.BadParameter(
            f"--conf {conf}: this folder has no train.yaml; run the command in a checkout"
        )
    with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
        cfg = compose("train", overrides)
        check_allowed(cfg, overrides)
        return checked(cfg)
