"""The command line of an evaluation, completed with the options that its checkpoint carries.

torch is imported only where a checkpoint is read, so that help and mistakes show at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from pcnn.experiment.errors import ConfigError

# groups whose options are named in the checkpoint
NAMED = ("model", "dataset", "task", "geometry", "engine")


def with_checkpoint_options(arguments: Sequence[str], conf: Path) -> list[str]:
    """The command line, preceded by the options that the checkpoint's run chose.

    Args:
        arguments: command line without the program.
        conf: folder of the configuration groups.
    """
    given = {text.partition("=")[0]: text.partition("=")[2] for text in arguments}
    if any(text.startswith("-") for text in arguments):
        return list(arguments)  # --help and the like need no checkpoint
    if not given.get("ckpt_path"):
        allowed = re.findall(r"[\w.]+", given.get("allow_targets", ""))
        if is_untrained(given.get("model", ""), conf, allowed):
            return list(arguments)
        raise ConfigError(
            "eval.py needs ckpt_path=FILE.\n"
            "possible: ckpt_path=logs/<task>/<run>/checkpoints/best.ckpt, or model=fpfh"
        )
    from pcnn.experiment.weights import read_config  # imports torch

    saved = OmegaConf.create(read_config(given["ckpt_path"].strip("'\"")))
    options = {name: saved[name].name for name in NAMED if name not in given}
    searched = re.findall(r"file://([^],'\"]+)", given.get("hydra.searchpath", ""))
    folders = [conf, *map(Path, searched)]
    chosen = [
        f"{name}={option}"
        for name, option in options.items()
        # a name that a file holds becomes a word of the command line: nothing but a name
        if re.fullmatch(r"\w+", str(option))
        and any((folder / name / f"{option}.yaml").exists() for folder in folders)
    ]
    return [*chosen, *arguments]


def is_untrained(name: str, conf: Path, allowed: Sequence[str] = ()) -> bool:
    """True for an option of the group `model` without weights: no checkpoint belongs to it."""
    path = conf / "model" / f"{name}.yaml"
    if not path.is_file():
        return False
    model = OmegaConf.load(path)
    assert isinstance(model, DictConfig)
    from pcnn.experiment.check import is_network  # imports torch and the model

    return not is_network(model, allowed)
