"""Paths in a configuration that was read from a file: what a run writes stays where it belongs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pcnn.callbacks.loaded_config import values_in
from pcnn.experiment.errors import ConfigError

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
    for folder in _data_folders(OmegaConf.to_container(dataset, resolve=True)):
        if leads_away(folder) and not Path(folder).is_dir():
            raise ConfigError(
                f"{path}: dataset.data_dir={folder[:80]} is no folder of this machine.\n"
                "possible: make it, or dataset.data_dir=FOLDER where a checkpoint is evaluated"
            )


def leads_away(text: str) -> bool:
    """Whether a path is absolute, climbs, or stands for another place (home, variable, URL)."""
    return (
        text.startswith(("/", "~", "\\"))
        or ".." in Path(text).parts
        or "$" in text
        or "://" in text
    )


def _data_folders(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "data_dir" and isinstance(value, str):
                yield value
            else:
                yield from _data_folders(value)
