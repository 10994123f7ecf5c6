"""What a training is made of: data, task, given weights, trainer, callbacks, loggers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, ProgressBar
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig
from torch import nn

from pcnn.checkpoints import RunCheckpoint
from pcnn.config import make, named_after
from pcnn.errors import ConfigError
from pcnn.experiment.devices import precision_on
from pcnn.experiment.networks import network
from pcnn.experiment.run_config import (
    allowed,
    data_module,
    no_graph,
    of_this_package,
    resolved,
    task_parts,
    views,
    without,
)
from pcnn.experiment.weights import check_finite, check_fit, weights_file
from pcnn.messages import counted
from pcnn.nn import PlannedModule
from pcnn.tasks.network_task import NetworkTask

# arguments of callbacks and loggers that are paths in the run folder
PATHS = ("folder", "path", "save_dir")


def data(cfg: DictConfig) -> L.LightningDataModule:
    """The data module of the chosen data set, its files found."""
    module = data_module(cfg)
    sets: Any = getattr(module, "sets", None)
    if cfg.get("ckpt_path") and getattr(sets, "known_channels", None):  # before data are simulated
        known, names = cfg.copy(), sets.label_map.class_names
        known.data = {"channels": list(sets.known_channels), "class_names": list(names)}
        check_fit(known)
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
    return module


def beside(group: str, cfg: DictConfig, folder: Path, given: Mapping[str, Any]) -> list[Any]:
    """Callbacks or loggers, each with those of the given values that it asks for by name."""
    kind = {"callbacks": Callback, "logger": Logger}[group]
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


def on_this_machine(cfg: DictConfig, folder: Path) -> tuple[DictConfig, torch.device, list[str]]:
    """The configuration with what this machine decides, the device, and lines that tell of it.

    * Half precision by loss scaling (`16-mixed`, the default) is of CUDA; others have `32-true`.
    * Steps run as CUDA graphs (`trainer.cuda_graphs`) on CUDA devices alone; with `auto` where one
      is known to hold them.
    """
    cfg = cfg.copy()
    given = str(cfg.trainer.get("precision"))
    plain = cfg.copy()
    plain.trainer.precision = "32-true"  # to ask for the device without its warnings
    device = trainer(plain, folder, [], []).strategy.root_device
    lines = []
    if precision_on(device, given) != given:
        cfg.trainer.precision = precision_on(device, given)
        if f"trainer.precision={given}" in (cfg.get("words") or ()):
            lines.append(f"precision: 32-true, as trainer.precision={given} needs a GPU")
    if asked := cfg.trainer.get("cuda_graphs"):
        reason = None if device.type == "cuda" else "trainer.cuda_graphs=true needs a CUDA device"
        if asked == "auto" and reason is None and cfg.train:
            reason = no_graph(cfg)
            if reason is None and not of_this_package(cfg):
                reason = "trainer.cuda_graphs=auto knows parts of this package alone"
        cfg.trainer.cuda_graphs = reason is None
        if reason is not None and cfg.train and (asked is True or device.type == "cuda"):
            lines.append(f"steps run eagerly: {reason}")
    return cfg, device, lines


def fine_tuned(task: L.LightningModule, cfg: DictConfig, begins: bool) -> list[str]:
    """Give a task the weights, the frozen layers and the rates that its configuration asks for."""
    if cfg.init_from is None and not cfg.freeze and cfg.layer_decay == 1.0:
        return []
    if not isinstance(task, NetworkTask):
        raise ConfigError("task", "fine-tuning needs a NetworkTask of pcnn.tasks")
    told = [initialised(task.net, cfg)] if cfg.init_from is not None and begins else []
    with named_after("freeze"):
        task.freeze_layers(list(cfg.freeze))
    task.layer_decay = float(cfg.layer_decay)
    return told


def initialised(net: nn.Module, cfg: DictConfig) -> str:
    """Give a network the weights of a checkpoint that have their name and shape in it."""
    path = weights_file(cfg.init_from)
    weights = RunCheckpoint.read(path, mmap=False).weights
    check_finite(weights, path)
    taken = {
        name: weights[name]
        for name, value in net.state_dict().items()
        if name in weights and weights[name].shape == value.shape
    }
    learnt = dict(net.named_parameters())
    if not any(learnt[name].ndim > 1 for name in learnt.keys() & taken.keys()):
        rule = f"no weight of {path} has name and shape of one of model={cfg.model.name}"
        raise ConfigError("init_from", rule)
    net.load_state_dict(taken, strict=False)
    new = [name for name in learnt if name not in taken]
    return (
        f"init_from={cfg.init_from}: {len(learnt) - len(new)} of "
        f"{counted(len(learnt), 'weight')} taken; new: {', '.join(new)[:200] or 'none'}"
    )
