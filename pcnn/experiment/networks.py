"""The network, its engine and the placement of a configuration; networks of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from pcnn.checkpoints import RunCheckpoint
from pcnn.config import make, named_after
from pcnn.datasets import Placement
from pcnn.errors import ConfigError, first_line
from pcnn.experiment.weights import check_finite, fitting, opened, weights_file
from pcnn.files.bounded import named, read_yaml
from pcnn.nn.conv import convolutions
from pcnn.ops.engine import Engine, resolve

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
    layers = convolutions(net)
    for name, own in engines_of_layers(cfg).items():
        if name not in layers:
            raise ConfigError("engine.layers", f"{name}: not one of {', '.join(layers)}"[:500])
        layers[name].engine = own
    return net


def load(
    model: str | Path, device: torch.device | str = "cpu", allow_targets: Sequence[str] = ()
) -> nn.Module:
    """Make a trained network, in evaluation mode.

    It takes a `SparseTensor` of the channels, the voxel size and the unit that it was trained on;
    `pcnn.predict` takes points and sees to these.

    Args:
        model: a name of `pcnn.models.available`, or a checkpoint.
        device: where it computes.
        allow_targets: packages of the user's own whose classes a checkpoint may name.

    Raises:
        FileNotFoundError: no such file or name.
        FileError: a damaged file.
    """
    path = weights_file(model)
    with named(path, "checkpoint of a run"):
        cfg, found = opened(path, allow_targets=allow_targets)
        return network_of(cfg, found).to(device).eval()


def network_of(cfg: DictConfig, found: RunCheckpoint) -> nn.Module:
    """The network of a checkpoint, with its weights, on the CPU."""
    names = cfg.data.get("class_names")
    out = int(cfg.data.out_channels) if names is None else len(names)
    net = network(cfg, int(cfg.data.in_channels), out)
    weights = found.weights
    check_finite(weights, found.path)
    with fitting(found.path):
        net.load_state_dict(weights)
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
        with named_after("engine.layers"):
            cfg.engine.layers = read_yaml(Path(layers))
    engines_of_layers(cfg)


def engines_of_layers(cfg: DictConfig) -> dict[str, Engine]:
    """The engines of layers that ``engine.layers`` has settings for."""
    found: Any = OmegaConf.to_container(cfg.engine, resolve=True)
    try:
        layers = (found.get("layers") or {}).items()
        return {str(name): engine_of(cfg).having(**values) for name, values in layers}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError("engine.layers", first_line(error)) from error


def check_engine(cfg: DictConfig, device: torch.device) -> None:
    """Refuse an engine that does not serve the device or the geometry of the run."""
    with named_after("engine"):
        engine_of(cfg).check(cfg.geometry.name, device)
