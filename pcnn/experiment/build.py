"""Make what a training needs of a configuration: data, task, trainer, callbacks, loggers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, ProgressBar
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig

from pcnn.config import make, named_after
from pcnn.errors import ConfigError
from pcnn.experiment.networks import network
from pcnn.experiment.run_config import (
    allowed,
    data_module,
    resolved,
    task_parts,
    views,
    without,
)
from pcnn.nn import PlannedModule

# arguments of callbacks and loggers that are paths in the run folder
PATHS = ("folder", "path", "save_dir")


def data(cfg: DictConfig) -> L.LightningDataModule:
    """The data module of the chosen data set, its files found."""
    module = data_module(cfg)
    with named_after("dataset"):
        # on every rank: a simulator locks, and later calls find its files
        module.prepare_data()
        module.setup("fit" if cfg.train else "test")
    return module


def task(cfg: DictConfig) -> L.LightningModule:
    """The Lightning module around a new network; `cfg.data` says what the data is like."""
    node, _ = task_parts(cfg)
    net = network(cfg, int(cfg.data.in_channels), int(cfg.data.out_channels))
    if isinstance(net, PlannedModule):
        net.graphs = cfg.trainer.get("cuda_graphs") is not False
    facts = resolved(cfg.data)
    module = make(
        {**node, "net": net},
        "task",
        allowed(cfg),
        # auto: the machine has not been asked
        cuda_graphs=cfg.trainer.get("cuda_graphs") is True,
        views=views(cfg),
        **{key: facts[key] for key in ("class_names", "voxel_size", "benchmark") if key in facts},
    )
    if not isinstance(module, L.LightningModule):
        raise ConfigError("task._target_", "a LightningModule is needed")
    _try_schedule(module, node)
    return module


def _try_schedule(module: Any, node: Mapping[str, Any]) -> None:
    """Make the optimiser of one parameter, and its schedule: values refused show before the fit."""
    if not isinstance(node.get("optimizer"), Mapping):
        return
    with named_after("task.optimizer", node["optimizer"]):
        optimizer = module.make_optimizer([torch.nn.Parameter(torch.zeros(1))])
    with named_after("task.scheduler", node.get("scheduler")):
        module.make_scheduler(optimizer, total_steps=2)


def callbacks(cfg: DictConfig, folder: Path, given: Mapping[str, Any]) -> list[Callback]:
    """The callbacks, each with those of the given values that its constructor asks for by name."""
    return _made_of("callbacks", cfg, folder, given, Callback)


def loggers(cfg: DictConfig, folder: Path, given: Mapping[str, Any]) -> list[Logger]:
    """The loggers, each with those of the given values that its constructor asks for by name."""
    return _made_of("logger", cfg, folder, given, Logger)


def _made_of(
    group: str, cfg: DictConfig, folder: Path, given: Mapping[str, Any], kind: type
) -> list[Any]:
    made = []
    for name, node in resolved(cfg[group]).items():
        if node is None:  # left out
            continue
        where = f"{group}.{name}"
        paths = {key: str(folder / node[key]) for key in PATHS if isinstance(node.get(key), str)}
        one = make({**node, **paths}, where, allowed(cfg), **given)
        if not isinstance(one, kind):
            raise ConfigError(f"{where}._target_", f"a {kind.__name__} is needed")
        made.append(one)
    return made


def trainer(
    cfg: DictConfig, folder: Path, callbacks: list[Callback], loggers: list[Logger]
) -> L.Trainer:
    """The trainer; its files go to the run folder."""
    node = without(resolved(cfg.trainer), "trainer")
    if node.get("enable_progress_bar") is False:  # Lightning refuses the two together
        callbacks = [callback for callback in callbacks if not isinstance(callback, ProgressBar)]
    accelerator = node.get("accelerator")
    here = torch.cuda.is_available() or (accelerator == "gpu" and torch.backends.mps.is_available())
    if accelerator in ("gpu", "cuda") and not here:
        raise ConfigError(
            "trainer.accelerator", f"torch sees no {accelerator} here (pcnn doctor says why)"
        )
    if type(node.get("val_check_interval")) is int and node.get("check_val_every_n_epoch") is None:
        node["val_check_interval"] *= max(1, int(node.get("accumulate_grad_batches", 1)))
    made = make(
        node,
        "trainer",
        allowed(cfg),
        callbacks=callbacks,
        logger=loggers or False,
        default_root_dir=folder,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
    )
    if not isinstance(made, L.Trainer):
        raise ConfigError("trainer._target_", "a Trainer of Lightning's is needed")
    return made
