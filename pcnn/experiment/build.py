"""Make what a training needs of a configuration: data module, task, trainer, callbacks, loggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, Checkpoint, ProgressBar
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig

from pcnn.experiment import nodes
from pcnn.experiment.described_keys import ABOUT_TRAINER, without
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.networks import network
from pcnn.experiment.nodes import asked_for, plain, refused_values, short
from pcnn.experiment.schema import training_part
from pcnn.experiment.targets import allowed_packages, verified
from pcnn.tasks.network_task import NetworkTask

# what a task may want to know about its data
ABOUT_DATA = ("class_names", "voxel_size", "benchmark")
# arguments of callbacks and loggers that are paths in the run folder
PATHS = ("folder", "path", "save_dir")


def make(node: Mapping[str, Any], where: str, allow: Sequence[str] = (), **given: Any) -> Any:
    """The same as `pcnn.experiment.nodes.make`, where Lightning has a refusal of its own kind.

    Raises:
        ConfigError: as there, and in place of Lightning's.
    """
    try:
        return nodes.make(node, where, allow, **given)
    except MisconfigurationException as error:
        raise short(error, where, node) from error


def data_module(cfg: DictConfig) -> L.LightningDataModule:
    """The data module of the chosen data set and task; nothing is read.

    Raises:
        ConfigError: a value is refused.
    """
    module = make(plain(cfg.dataset.tasks[cfg.task.name]), "dataset", allowed_packages(cfg))
    assert isinstance(module, L.LightningDataModule)
    return module


def data(cfg: DictConfig) -> L.LightningDataModule:
    """The data module of the chosen data set and task, its files found.

    Raises:
        FileNotFoundError: data is missing.
        ConfigError: a value or a file is refused.
    """
    module = data_module(cfg)
    with refused_values():
        # on every rank: a simulator locks, and later calls find its files
        module.prepare_data()
        module.setup("fit" if cfg.train else "test")
    return module


def task(cfg: DictConfig) -> L.LightningModule:
    """The Lightning module around a new network; `cfg.data` says what the data is like."""
    net = network(cfg, int(cfg.data.in_channels), int(cfg.data.out_channels))
    allow = allowed_packages(cfg)
    node = verified(training_part(plain(cfg.task)), "task", allow)
    facts = {key: plain(cfg.data)[key] for key in ABOUT_DATA if key in cfg.data}
    facts["graph"] = cfg.trainer.get("graph") is True  # auto: the machine has not been asked
    facts["views"] = make(plain(cfg.tta), "tta", allow) if cfg.get("tta") else None
    module = make(node, "task", allow, net=net, **asked_for(node, facts))
    assert isinstance(module, L.LightningModule)
    if isinstance(module, NetworkTask):
        module.shard_optimizer = bool(cfg.trainer.get("shard_optimizer", False))
    try_schedule(module, node)
    return module


def try_schedule(module: Any, node: Mapping[str, Any]) -> None:
    """Make the optimiser of one parameter, and its schedule: values refused show before the fit."""
    if not isinstance(node.get("optimizer"), Mapping):
        return
    with refused_values("task.optimizer", node["optimizer"]):
        optimizer = module.make_optimizer([torch.nn.Parameter(torch.zeros(1))])
    with refused_values("task.scheduler", node.get("scheduler")):
        module.make_scheduler(optimizer, total_steps=2)


def callbacks(cfg: DictConfig, folder: Path, given: Mapping[str, Any]) -> list[Callback]:
    """The callbacks, each with those of the given values that its constructor asks for by name."""
    return made_of("callbacks", cfg, folder, given)


def loggers(cfg: DictConfig, folder: Path, given: Mapping[str, Any]) -> list[Logger]:
    """The loggers, each with those of the given values that its constructor asks for by name."""
    return made_of("logger", cfg, folder, given)


def made_of(group: str, cfg: DictConfig, folder: Path, given: Mapping[str, Any]) -> list[Any]:
    """The objects of a group; a node that is null is left out."""
    made = []
    for name, node in plain(cfg[group]).items():
        if node is not None:
            where = f"{group}.{name}"
            placed = inside(verified(node, where, allowed_packages(cfg)), folder)
            made.append(make(placed, where, allowed_packages(cfg), **asked_for(placed, given)))
    return made


def inside(node: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The node with its relative paths put into the run folder."""
    placed = {name: str(folder / node[name]) for name in PATHS if isinstance(node.get(name), str)}
    return {**node, **placed}


def trainer(
    cfg: DictConfig, folder: Path, callbacks: list[Callback], loggers: list[Logger]
) -> L.Trainer:
    """The trainer; its files go to the run folder.

    `trainer.val_check_interval` counts optimiser steps; Lightning counts batches.

    Raises:
        ConfigError: a value is refused, or there is no such device.
    """
    node = without(plain(cfg.trainer), ABOUT_TRAINER)
    if node.get("enable_progress_bar") is False:  # Lightning refuses the two together
        callbacks = [callback for callback in callbacks if not isinstance(callback, ProgressBar)]
    accelerator = node.get("accelerator")
    here = torch.cuda.is_available() or (accelerator == "gpu" and torch.backends.mps.is_available())
    if accelerator in ("gpu", "cuda") and not here:
        raise ConfigError(
            f"trainer.accelerator={accelerator}: torch sees no GPU here (pcnn doctor says why).\n"
            "possible: trainer=auto, which takes what is there"
        )
    if type(node.get("val_check_interval")) is int and node.get("check_val_every_n_epoch") is None:
        node["val_check_interval"] *= max(1, int(node.get("accumulate_grad_batches", 1)))
    made = make(
        node,
        "trainer",
        allowed_packages(cfg),
        callbacks=callbacks,
        logger=loggers or False,
        default_root_dir=folder,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
    )
    assert isinstance(made, L.Trainer)
    return made
