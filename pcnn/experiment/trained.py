"""Trained networks by name: `pcnn.models.available` and `pcnn.models.load`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from omegaconf import DictConfig
from torch import nn

from pcnn.checkpoints import RunCheckpoint
from pcnn.experiment import networks
from pcnn.experiment.catalogue import Weights, catalogue, weights_file
from pcnn.experiment.weights import check_finite, fitting, opened
from pcnn.files.bounded import named


def available() -> dict[str, Weights]:
    """Trained weights by name: those that come with the package, and those to download."""
    return catalogue()


def load(
    model: str | Path, device: torch.device | str = "cpu", allow_targets: Sequence[str] = ()
) -> nn.Module:
    """Make a trained network; see `pcnn.models.load`."""
    path = weights_file(model)
    with named(path, "checkpoint of a run"):
        cfg, found = opened(path, allow_targets=allow_targets)
        return network_of(cfg, found).to(device).eval()


def network_of(cfg: DictConfig, found: RunCheckpoint) -> nn.Module:
    """The network of a checkpoint, with its weights, on the CPU."""
    names = cfg.data.get("class_names")
    out = int(cfg.data.out_channels) if names is None else len(names)
    net = networks.network(cfg, int(cfg.data.in_channels), out)
    weights = found.weights
    check_finite(weights, found.path)
    with fitting(found.path):
        net.load_state_dict(weights)
    return net
