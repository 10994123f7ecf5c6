"""Given weights, layers that do not learn, and rates of layers."""

from __future__ import annotations

import lightning as L
from omegaconf import DictConfig
from torch import nn

from pcnn.checkpoints import RunCheckpoint
from pcnn.config import named_after
from pcnn.errors import ConfigError
from pcnn.experiment.catalogue import weights_file
from pcnn.experiment.weights import check_finite
from pcnn.messages import counted
from pcnn.tasks.layers_of import matching
from pcnn.tasks.network_task import NetworkTask


def prepare(task: L.LightningModule, cfg: DictConfig, begins: bool) -> list[str]:
    """Give a task the weights, the frozen layers and the rates that its configuration asks for."""
    rate = float(cfg.get("layer_decay", 1.0))
    rates = {name: float(factor) for name, factor in (cfg.get("lr_multipliers") or {}).items()}
    if not (cfg.get("init_from") is not None or cfg.get("freeze") or rate != 1.0 or rates):
        return []
    if not isinstance(task, NetworkTask):
        raise ConfigError("task", "fine-tuning needs a NetworkTask of pcnn.tasks")
    told = []
    if cfg.get("init_from") is not None and begins:
        told = [initialise(task.net, cfg)]
    with named_after("freeze"):
        task.freeze_layers(list(cfg.get("freeze") or ()))
    with named_after("lr_multipliers"):
        matching(task.net, list(rates))
        if any(factor <= 0 for factor in rates.values()):
            raise ValueError("factors of rates are above 0; freeze keeps layers from learning")
    task.layer_decay, task.lr_multipliers = rate, rates
    return told


def initialise(net: nn.Module, cfg: DictConfig) -> str:
    """Give a network the weights of a checkpoint that have their name and shape in it."""
    path = weights_file(cfg.init_from)
    found = RunCheckpoint.read(path, mmap=False)
    weights = found.weights
    check_finite(weights, path)
    own = net.state_dict()
    taken = {
        name: weights[name]
        for name, value in own.items()
        if name in weights and weights[name].shape == value.shape
    }
    parameters = [name for name, _ in net.named_parameters()]
    if not any(own[name].ndim > 1 for name in parameters if name in taken):
        raise ConfigError(
            "init_from",
            f"no weight has name and shape of one of model={cfg.model.name}; it was trained with "
            f"model={found.config.get('model', {})}"[:500],
        )
    net.load_state_dict(taken, strict=False)
    new = [name for name in parameters if name not in taken]
    return (
        f"init_from={cfg.init_from}: {len(parameters) - len(new)} of "
        f"{counted(len(parameters), 'weight')} taken; new: {', '.join(new[:4]) or 'none'}"
        f"{f' and {len(new) - 4} more' if len(new) > 4 else ''}"
    )
