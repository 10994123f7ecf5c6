"""The configuration of `train.py`, for commands that take its options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.programs import CONF

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["CONF", "Conf", "composed"]

Conf = Annotated[
    Path,
    typer.Option(
        help="Folder of the configurations of train.py.", show_default="those of the package"
    ),
]


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
            f"--conf {conf}: no train.yaml is in it; without --conf the package's own is read"
        )
    with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
        cfg = compose("train", overrides)
        check_allowed(cfg, overrides)
        return checked(cfg)
