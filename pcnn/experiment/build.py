"""Make the objects that a configuration names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, Checkpoint, ProgressBar
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf
from torch import nn

from pcnn.datasets import OnVoxels, Placement
from pcnn.experiment.arguments import signature
from pcnn.experiment.check import ABOUT_MODEL, ABOUT_TRAINER, without
from pcnn.experiment.engine_choice import engine_of, set_layers
from pcnn.experiment.errors import MAX_LINES, ConfigError
from pcnn.experiment.schema import training_part
from pcnn.experiment.targets import allowed_packages, construct, verified
from pcnn.hints import shown
from pcnn.models.recompute import recompute
from pcnn.ops.engine import check_served
from pcnn.tasks.network_task import NetworkTask

# what constructors raise for a value that they do not take
REFUSALS = (ValueError, MisconfigurationException, ImportError)
# what a task may want to know about its data
ABOUT_DATA = ("class_names", "voxel_size", "benchmark")
# arguments of callbacks and loggers that are paths in the run folder
PATHS = ("folder", "path", "save_dir")


def make(node: Mapping[str, Any], where: str, allow: Sequence[str] = (), **given: Any) -> Any:
    """Call the node's `_target_` with its arguments and the given ones.

    Args:
        node: the node, resolved.
        where: its dotted name, which says what may stand there.
        allow: packages of the user's own.
        given: what the program passes itself.

    Raises:
        ConfigError: a target that may not stand there, or the constructor refuses a value.
    """
    checked = verified(node, where, allow)
    with refused_values(where, node):
        return construct({**checked, "_partial_": True})(**given)


@contextmanager
def refused_values(where: str = "", node: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn a refused value, which the user chose, into a short message that names its key.

    A TypeError of a library's constructor is one, of this package's it is a defect.

    Args:
        where: dotted name of the node.
        node: the node itself.

    Raises:
        ConfigError: in place of a ValueError, or of Lightning's own kind.
    """
    node = node or {}
    try:
        yield
    except ConfigError:
        raise
    except (*REFUSALS, TypeError) as error:
        of_library = not str(node.get("_target_", "pcnn.")).startswith("pcnn.")
        if isinstance(error, TypeError) and not of_library:
            raise
        raise short(error, where, node) from error


def short(error: Exception, where: str, node: Mapping[str, Any]) -> ConfigError:
    """The first lines of an error's text, after the key that it is about."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = "\n".join(lines[:MAX_LINES]) or type(error).__name__
    set_ones = [name for name, value in node.items() if value is not None]
    names = [name for name in set_ones if re.search(rf"\b{re.escape(name)}\b", text)]
    if not names:  # or by the value, where the text tells it
        names = [name for name, one in node.items() if isinstance(one, str) and repr(one) in text]
    if len(names) == 1 and f"{where}.{names[0]}" not in text:
        value = node[names[0]]
        set_to = "" if isinstance(value, Mapping) else f"={shown(value)}"
        return ConfigError(f"{where}.{names[0]}{set_to}: {text}")
    return ConfigError(f"{where}: {text}" if where and where not in text else text)


def plain(node: DictConfig) -> dict[str, Any]:
    """A node as a dictionary, interpolations resolved."""
    resolved = OmegaConf.to_container(node, resolve=True)
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


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


def placement(cfg: DictConfig) -> Placement:
    """The placement, which puts clouds on the chosen geometry."""
    if "_target_" not in cfg.get("geometry", {}):  # an earlier version: its geometry was voxels
        return OnVoxels()
    made: Placement = make(plain(cfg.geometry), "geometry", allowed_packages(cfg))
    return made


def network(cfg: DictConfig, in_channels: int, out_channels: int) -> nn.Module:
    """The network, with random weights drawn from torch's global generator."""
    with refused_values():
        engine = engine_of(cfg)
    given = {
        "in_channels": in_channels,
        "out_channels": out_channels,
        "task": cfg.task.name,
        "engine": engine,
    }
    node = verified(without(plain(cfg.model), ABOUT_MODEL), "model", allowed_packages(cfg))
    net = make(filled(node, given), "model", allowed_packages(cfg))
    assert isinstance(net, nn.Module)
    set_layers(net, cfg)
    if cfg.get("recompute"):
        with refused_values():
            recompute(net, list(cfg.recompute))
    return net


def check_engine(cfg: DictConfig, device: torch.device) -> None:
    """Refuse an engine that does not serve the device or the geometry of the run.

    Raises:
        ConfigError: naming the engines that serve it.
    """
    with refused_values():
        check_served(engine_of(cfg), device, cfg.geometry.name)


def task(cfg: DictConfig) -> L.LightningModule:
    """The Lightning module around a new network; `cfg.data` says what the data is like."""
    net = network(cfg, int(cfg.data.in_channels), int(cfg.data.out_channels))
    allow = allowed_packages(cfg)
    node = verified(training_part(plain(cfg.task)), "task", allow)
    facts = {key: plain(cfg.data)[key] for key in ABOUT_DATA if key in cfg.data}
    facts["compiled"] = bool(cfg.get("compile", False))  # earlier configurations have no such key
    facts["graph"] = cfg.trainer.get("graph") is True  # auto: the machine has not been asked
    facts["views"] = make(plain(cfg.tta), "tta", allow) if cfg.get("tta") else None
    module = make(node, "task", allow, net=net, **asked_for(node, facts))
    assert isinstance(module, L.LightningModule)
    if isinstance(module, NetworkTask):
        module.out_of_memory = cfg.trainer.get("out_of_memory") or "raise"
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


def filled(node: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The verified node, and every node in it, with the given values that its target asks for.

    A node marked `_partial_` is called by another object, which passes what it wants itself.
    """
    inner = {
        name: filled(value, given) if isinstance(value, dict) and "_target_" in value else value
        for name, value in node.items()
    }
    return inner if node.get("_partial_") else {**inner, **asked_for(node, given)}


def asked_for(node: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values that a verified node's target asks for by name and the node does not set."""
    parameters, _ = signature(node["_target_"].call)
    return {name: value for name, value in given.items() if name in parameters and name not in node}


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
