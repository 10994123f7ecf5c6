"""The engine that a configuration chooses, with the settings of its paper."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from pcnn.experiment.schema import ABOUT
from pcnn.ops.engine import Engine, resolve


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
