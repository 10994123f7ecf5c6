"""Options that several commands have, and their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.app import ARGUMENT
from pcnn.messages import counted

if TYPE_CHECKING:
    from omegaconf import DictConfig

Overrides = Annotated[
    list[str],
    ARGUMENT,
    "An experiment of conf/experiment, then options of pcnn train such as dataset=kitti.",
]
Conf = Annotated[Path | None, "Folder of configurations; those of the package unless given."]
Progress = Annotated[bool, "Show progress."]
Open = Annotated[bool, "--open", "Show the page in the browser."]


def composed(overrides: Sequence[str], conf: Path | None) -> DictConfig:
    """The checked configuration of pcnn train; the first word may name an experiment."""
    from hydra import compose, initialize_config_dir

    from pcnn.config import check_allowed
    from pcnn.experiment.run_config import allowed, checked
    from pcnn.programs import CONF

    folder = conf or CONF
    if not (folder / "train.yaml").is_file():
        raise typer.BadParameter(f"--conf {folder}: no train.yaml is in it")
    words = list(overrides)
    if words and "=" not in words[0]:
        words[0] = f"experiment={words[0]}"
    with initialize_config_dir(str(folder.resolve()), version_base="1.3"):
        cfg = compose("train", words)
        check_allowed(allowed(cfg), words)
        return checked(cfg)


def filled(words: Sequence[str] | None) -> dict[str, float]:
    """Numbers by the names of their channels, of words such as ``intensity=0``."""
    found: dict[str, float] = {}
    for word in words or ():
        name, _, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not name.strip() or not math.isfinite(value):
            raise typer.BadParameter(f"--fill {word}: must be NAME=NUMBER, as in intensity=0")
        found[name.strip().lower()] = value
    return found


def each(name: str, files: Sequence[Path] | None, n: int) -> list[Path | None]:
    """The file of every cloud that an option names, None where it is not given."""
    if files and len(files) != n:
        told = f"{counted(len(files), 'file')} for {counted(n, 'cloud')}"
        raise typer.BadParameter(f"--{name}: {told}")
    return list(files) if files else [None] * n
