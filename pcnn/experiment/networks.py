"""The network and the placement of a configuration; their packages are the only ones imported."""

from __future__ import annotations

import torch
from omegaconf import DictConfig
from torch import nn

from pcnn.datasets import OnVoxels, Placement
from pcnn.experiment.described_keys import ABOUT_MODEL, without
from pcnn.experiment.engine_choice import engine_of, set_layers
from pcnn.experiment.nodes import filled, make, plain, refused_values
from pcnn.experiment.targets import allowed_packages, verified
from pcnn.models.recompute import recompute
from pcnn.ops.engine import check_served


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
