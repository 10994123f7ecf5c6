"""The network, its engine and the placement of a configuration; nothing else is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from pcnn.config import make, named_after
from pcnn.datasets import Placement
from pcnn.errors import ConfigError
from pcnn.files.text import read_yaml
from pcnn.models.activation_checkpointing import checkpoint_activations
from pcnn.ops.engine import Engine, check_served, resolve
from pcnn.runtime.layer_calls import convolutions

#: Keys of a model and of an engine that are no arguments.
_ABOUT_MODEL = ("name", "tasks", "geometries")
_ABOUT_ENGINE = ("name", "deterministic", "layers")


def placement(cfg: DictConfig) -> Placement:
    """The placement, which puts clouds on the chosen geometry."""
    node = OmegaConf.to_container(cfg.geometry, resolve=True)
    made: Placement = make(node, "geometry", tuple(cfg.get("allow_targets") or ()))
    return made


def network(cfg: DictConfig, in_channels: int, out_channels: int) -> nn.Module:
    """The network, with random weights drawn from torch's global generator."""
    with named_after("engine"):
        engine = engine_of(cfg)
    plain: Any = OmegaConf.to_container(cfg.model, resolve=True)
    net = make(
        {key: value for key, value in plain.items() if key not in _ABOUT_MODEL},
        "model",
        tuple(cfg.get("allow_targets") or ()),
        in_channels=in_channels,
        out_channels=out_channels,
        task=cfg.task.name,
        engine=engine,
    )
    if not isinstance(net, nn.Module):
        raise ConfigError("model._target_", "a network is needed")
    set_layers(net, cfg)
    if cfg.get("activation_checkpointing"):
        with named_after("activation_checkpointing"):
            checkpoint_activations(net, list(cfg.activation_checkpointing))
    return net


def engine_of(cfg: DictConfig) -> Engine:
    """The engine of the group ``engine``; keys that do not describe it are its paper's settings."""
    node: Any = OmegaConf.to_container(cfg.engine, resolve=True)
    settings = {str(key): value for key, value in node.items() if key not in _ABOUT_ENGINE}
    return resolve(str(node["name"]), bool(node.get("deterministic", False)), **settings)


def fill_layers(cfg: DictConfig) -> None:
    """Put what a file says about single layers in the place of its name, so that runs keep it."""
    layers = cfg.engine.get("layers")
    if isinstance(layers, str):
        if not Path(layers).is_file():
            raise ConfigError("engine.layers", f"{layers[:80]}: no such file")
        cfg.engine.layers = OmegaConf.create({"read": read_yaml(Path(layers))}).read
    try:
        for values in (cfg.engine.get("layers") or {}).values():
            engine_of(cfg).for_layer(**{str(key): value for key, value in values.items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError("engine.layers", str(error).partition("\n")[0]) from error


def set_layers(net: nn.Module, cfg: DictConfig) -> None:
    """Give single layers of a network the settings that ``engine.layers`` has for them."""
    found = convolutions(net)
    for name, values in (cfg.engine.get("layers") or {}).items():
        layer = found.get(name)
        if layer is None:
            raise ConfigError("engine.layers", f"{name}: not one of {', '.join(found)}"[:500])
        layer.engine = layer.engine.for_layer(**{str(key): one for key, one in values.items()})


def check_engine(cfg: DictConfig, device: torch.device) -> None:
    """Refuse an engine that does not serve the device or the geometry of the run."""
    with named_after("engine"):
        check_served(engine_of(cfg), device, cfg.geometry.name)
