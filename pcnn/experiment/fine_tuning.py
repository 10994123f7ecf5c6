"""Given weights, layers that do not learn, and rates of layers."""

from __future__ import annotations

import lightning as L
from omegaconf import DictConfig
from torch import nn

from pcnn.checkpoints import RunCheckpoint
from pcnn.errors import ConfigError
from pcnn.experiment.catalogue import weights_file
from pcnn.experiment.weights import check_finite
from pcnn.messages import counted
from pcnn.tasks.layers_of import matching
from pcnn.tasks.network_task import NetworkTask

#: Names of new weights that are shown.
_SHOWN = 4


def prepare(task: L.LightningModule, cfg: DictConfig, begins: bool) -> str | None:
    """Give a task the weights, the frozen layers and the rates that its configuration asks for."""
    told, rate = None, float(cfg.get("layer_decay", 1.0))
    rates = {name: float(factor) for name, factor in (cfg.get("lr_multipliers") or {}).items()}
    asked = cfg.get("init_from") is not None or cfg.get("freeze") or rate != 1.0 or rates
    if not asked:
        return None
    if not isinstance(task, NetworkTask):
        raise ConfigError(
            "task",
            "init_from, freeze, layer_decay and lr_multipliers need a pcnn.tasks NetworkTask",
        )
    if cfg.get("init_from") is not None and begins:
        told = initialise(task.net, cfg)
    if cfg.get("freeze"):
        try:
            task.freeze_layers(list(cfg.freeze))
        except ValueError as error:
            raise ConfigError("freeze", str(error)) from error
    try:
        matching(task.net, list(rates))
        if any(factor <= 0 for factor in rates.values()):
            raise ValueError("factors of rates are above 0; freeze keeps layers from learning")
    except ValueError as error:
        raise ConfigError("lr_multipliers", str(error)) from error
    task.layer_decay, task.lr_multipliers = rate, rates
    return told


def initialise(net: nn.Module, cfg: DictConfig) -> str:
    """Give a network the weights of a checkpoint that have their name and shape in it.

    Others, as those of a head with other classes, stay as they were drawn.
    """
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
    fitting = [name for name in parameters if name in taken]
    if not any(own[name].ndim > 1 for name in fitting):
        model = found.config.get("model", {})
        settings = " ".join(
            f"model.{key}={value}" for key, value in model.items() if isinstance(value, int | float)
        )
        raise ConfigError(
            "init_from",
            f"no weight has name and shape of one of model={cfg.model.name}; it was trained with "
            f"model={model.get('name')} {settings}",
        )
    net.load_state_dict(taken, strict=False)
    new = [name for name in parameters if name not in taken]
    more = f" and {len(new) - _SHOWN} more" if len(new) > _SHOWN else ""
    return (
        f"init_from={cfg.init_from}: {len(fitting)} of {counted(len(parameters), 'weight')} taken; "
        f"new: {', '.join(new[:_SHOWN]) or 'none'}{more}"
    )
