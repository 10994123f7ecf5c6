"""Configurations as the programs compose them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, open_dict

CONF = Path(__file__).parents[2] / "conf"


def composed(*overrides: str, name: str = "train") -> DictConfig:
    """The configuration of a command line."""
    cfg = composed_with_hydra(name, overrides).copy()
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg


@cache
def composed_with_hydra(name: str, overrides: tuple[str, ...]) -> DictConfig:
    """The same with the group `hydra`; not to be changed."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(overrides), return_hydra_config=True)
