"""A command line that names a checkpoint or a run, completed with the options that these carry.

torch is imported only where a file is read, so that help and mistakes show at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from pcnn.config.values import LOCAL
from pcnn.errors import ConfigError

#: Groups whose options are named in a stored configuration.
NAMED = ("model", "dataset", "task", "geometry", "engine")
#: Groups of what runs beside a network: a run tells which of our own files it chose.
BESIDE = ("trainer", "callbacks", "logger")
#: Words of these groups that make a run what it is; its numbers all do.
WORDS = (
    *("trainer.accelerator", "trainer.devices", "trainer.precision", "trainer.max_time"),
    "trainer.cuda_graphs",
    *("callbacks.checkpoint.monitor", "callbacks.checkpoint.mode"),
)


def with_stored_options(arguments: Sequence[str], conf: Path) -> list[str]:
    """The command line, preceded by the options that the checkpoint's or the run's own chose."""
    given = dict(text.partition("=")[::2] for text in arguments)
    if any(text.startswith("-") for text in arguments):
        return list(arguments)  # --help and the like need no file
    if given.get("resume", "null").strip("'\"") not in ("null", "auto", ""):
        from pcnn.experiment.run_folder import load_config  # imports torch

        saved: Any = load_config(Path(_unquoted(given["resume"])))
        options = saved["choices"] if isinstance(saved.get("choices"), dict) else {}
    elif given.get("ckpt_path"):
        from pcnn.experiment.weights import read_config  # imports torch

        saved, options = read_config(_unquoted(given["ckpt_path"])), {}
    else:
        return list(arguments)
    options = {**{key: _name(saved.get(key)) for key in NAMED}, **options}
    searched = re.findall(r"file://([^],'\"]+)", given.get("hydra.searchpath", ""))
    folders = [conf, *map(Path, searched)]
    words = [
        word
        for key in (*NAMED, *BESIDE)
        if key not in given and (word := _word(key, options.get(key), folders)) is not None
    ]
    return [*words, *arguments]


def _name(group: Any) -> Any:
    return group.get("name") if isinstance(group, Mapping) else None


def _word(group: str, option: Any, folders: Sequence[Path]) -> str | None:
    """`group=option`; a name that a file holds becomes nothing but the name of one of our files."""
    names = option if isinstance(option, list) else [option]
    for name in names:
        there = re.fullmatch(r"\w+", str(name), re.ASCII) and any(
            (folder / group / f"{name}.yaml").exists() for folder in folders
        )
        if not there:
            return None
    return f"{group}=[{','.join(names)}]" if isinstance(option, list) else f"{group}={option}"


def _unquoted(text: str) -> str:
    """The value of an argument, without the quotes that Hydra takes."""
    return text.strip("'\"").replace('\\"', '"').replace("\\\\", "\\")


def repeated(overrides: Sequence[str]) -> list[str]:
    """Words of a command line that no run folder keeps: a resumed run wants them once more."""
    words = []
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        group, _, rest = key.partition(".")
        kept = key in WORDS or re.fullmatch(r"[\d.eE+-]+|null|true|false", value)
        beside = group in BESIDE and rest and not kept
        place = key in [f"dataset.{name}" for name in LOCAL] or key == "allow_targets"
        if beside or place or (key == "init_from" and not re.fullmatch(r"\w+", value)):
            words.append(text)
    return words


def needs_checkpoint(arguments: Sequence[str], conf: Path) -> None:
    """Refuse an evaluation of a network without weights."""
    given = dict(text.partition("=")[::2] for text in arguments)
    if any(text.startswith("-") for text in arguments) or given.get("ckpt_path"):
        return
    path = conf / "model" / f"{given.get('model', '')}.yaml"
    model: Any = OmegaConf.load(path) if path.is_file() else {}
    target = str(model.get("_target_"))
    if not target.startswith("pcnn.registration."):
        raise ConfigError("ckpt_path", "needs a value: ckpt_path=FILE, or model=fpfh without one")
