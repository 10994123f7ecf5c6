"""Options, data and device of a training, for the suites that measure one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig

#: Overrides that a row need not tell: where files lie.
PLACES = ("dataset.root", "dataset.data_dir")
#: Overrides that have columns of their own.
NAMED = ("dataset", "model")


def linked(cfg: DictConfig, folder: Path, scans: int) -> None:
    """Let a configuration read links to the labelled scans of its set, in turn.

    Raises:
        typer.BadParameter: it has no root of such scans.
    """
    from pcnn.bench.data.figures import linked_set

    if cfg.dataset.name != "kitti" or cfg.dataset.root is None:
        raise typer.BadParameter("--scans needs dataset=kitti and its dataset.root")
    cfg.dataset.root = str(linked_set(Path(cfg.dataset.root), folder / "kitti", scans))
    cfg.dataset.train_sequences, cfg.dataset.val_sequences = [0], []


def workload_of(cfg: DictConfig, overrides: list[str]) -> str:
    """The training in words: the data set, and the options that were given."""
    told = [word for word in overrides if word.partition("=")[0] not in (*PLACES, *NAMED)]
    return " ".join([str(cfg.dataset.name), *told])


def unattended(cfg: DictConfig, max_steps: int) -> DictConfig:
    """A training of so many steps, without validation and without a word on the terminal."""
    run = cfg.copy()
    run.trainer.update(
        max_steps=max_steps,
        limit_val_batches=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    return run


def device_of(cfg: DictConfig) -> torch.device:
    """The device that a configuration asks for."""
    from pcnn.cli.options import chosen_device

    kind: Any = {"gpu": "cuda", "cuda": "cuda", "cpu": "cpu"}
    return chosen_device(kind.get(str(cfg.trainer.accelerator), "auto"))


#: Options of the machine, which a short name leaves out.
MACHINE = (
    "dataset.num_workers",
    "dataset.cache",
    "dataset.source",
    "dataset.allow_missing",
    "logger",
)


def short_name(cfg: DictConfig, overrides: list[str]) -> str:
    """A training in a few words: its experiment, or network and data set, and options given."""
    begin = [str(cfg.model.name), str(cfg.dataset.name)]
    told = []
    for word in overrides:
        key, _, value = word.partition("=")
        if key == "experiment":
            begin = [value]
        elif key not in (*PLACES, *NAMED, *MACHINE):
            told.append(f"{key.rpartition('.')[2]}={value}")
    return " ".join([*begin, *told])
