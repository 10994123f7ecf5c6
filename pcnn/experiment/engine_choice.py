"""The engine that a configuration chooses, with the settings of its paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import nn

from pcnn.errors import first_line
from pcnn.experiment.described_keys import ABOUT
from pcnn.experiment.errors import ConfigError, listed, nearest
from pcnn.files.text import read_yaml
from pcnn.hints import shown
from pcnn.ops.engine import Engine, resolve
from pcnn.runtime.layer_calls import convolutions


def engine_of(cfg: DictConfig) -> Engine:
    """The engine of the group ``engine``; keys that do not describe it are its paper's settings.

    Raises:
        ValueError: no such engine or setting, the message names those there are; or a value that a
            setting does not take.
    """
    node = OmegaConf.to_container(cfg.engine, resolve=True)
    assert isinstance(node, dict)
    settings = {str(key): value for key, value in node.items() if key not in ABOUT["engine"]}
    # checkpoints of earlier versions do not say whether it is to be deterministic
    return resolve(str(node["name"]), bool(node.get("deterministic", False)), **settings)


def fill_layers(cfg: DictConfig) -> None:
    """Put what a file says about single layers in the place of its name, so that runs keep it.

    Raises:
        ConfigError: no such file, or one that holds no settings of layers; settings that the engine
            does not have.
        FileError: the file is no YAML.
    """
    layers = cfg.engine.get("layers")
    if isinstance(layers, str):
        layers = OmegaConf.create(_read(layers))
        cfg.engine.layers = layers
    try:
        for values in (layers or {}).values():
            engine_of(cfg).for_layer(**{str(key): value for key, value in values.items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"engine.layers: {first_line(error)}") from error


def set_layers(net: nn.Module, cfg: DictConfig) -> None:
    """Give single layers of a network the settings that ``engine.layers`` has for them.

    Raises:
        ConfigError: the network has no layer of a name.
    """
    found = convolutions(net)
    settings: Mapping[str, Mapping[str, Any]] = cfg.engine.get("layers") or {}
    for name, values in settings.items():
        layer = found.get(name)
        if layer is None:
            raise ConfigError(
                f"engine.layers: the network has no convolution {name}.{nearest(name, found)}\n"
                f"convolutions: {listed(found)}"
            )
        layer.engine = layer.engine.for_layer(**{str(key): one for key, one in values.items()})


def _read(path: str) -> dict[str, Any]:
    if not Path(path).is_file():
        raise ConfigError(f"engine.layers={shown(path)}: there is no such file")
    content = read_yaml(Path(path))
    if isinstance(content, dict) and all(isinstance(one, dict) for one in content.values()):
        return {str(key): value for key, value in content.items()}
    raise ConfigError(
        f"engine.layers={shown(path)} holds no settings of layers.\n"
        "possible: {layer: {setting: value}}, as pcnn tune --out writes it"
    )
