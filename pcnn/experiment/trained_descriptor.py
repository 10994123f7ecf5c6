"""The descriptor that a training left: a network, its weights, and what puts clouds before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from pcnn.callbacks import load_config, load_weights
from pcnn.errors import FileError
from pcnn.experiment import build
from pcnn.experiment.shipped import FOLDER
from pcnn.experiment.weights import check_finite, fitting
from pcnn.files.bounded import named
from pcnn.registration.network_descriptor import NetworkDescriptor


def trained_descriptor(
    cfg: DictConfig, weights: Mapping[str, Tensor], name: str, device: torch.device | str
) -> NetworkDescriptor:
    """The network of a configuration with given weights.

    Args:
        cfg: of a run with task=registration; its geometry is the one that is used.
        weights: of the network itself.
        name: as it is named beside figures.
        device: where it computes.

    Raises:
        ValueError: weights of another network.
    """
    net = build.network(cfg, 1, int(cfg.data.out_channels))
    check_finite(weights, name)
    with fitting(name):
        net.load_state_dict(dict(weights))
    return NetworkDescriptor(
        net.to(device).eval(), voxel_size(cfg), name, build.placement(cfg), device
    )


def of_checkpoint(
    path: str | Path, device: torch.device | str = "cpu", allow_targets: Sequence[str] = ()
) -> NetworkDescriptor:
    """The descriptor of a checkpoint, by the configuration that it carries.

    Args:
        path: the checkpoint.
        device: where it computes.
        allow_targets: packages of the user's own whose classes the configuration may name.

    Raises:
        FileNotFoundError: no such checkpoint.
        FileError: a torn file, or a checkpoint of another task.
    """
    with named(path, "checkpoint of a registration"):
        cfg = OmegaConf.create({**load_config(path), "allow_targets": list(allow_targets)})
        weights = load_weights(path)
        if cfg.task.name != "registration":
            raise FileError(path, f"trained for {cfg.task.name}, not for registration")
        return trained_descriptor(cfg, weights, described(cfg, path, cfg.data.source), device)


def described(cfg: DictConfig, path: str | Path, source: str) -> str:
    """Name of a descriptor: what it is, at which cell, on which geometry, what it was trained on.

    Args:
        cfg: of the network as it is used.
        path: file of the weights.
        source: of the training data, ``real`` or ``simulated``.
    """
    where = f"{cfg.model.name} {voxel_size(cfg):g} m, {cfg.geometry.name}"
    data = "" if source == "real" else ", trained on SIMULATED data"
    file = Path(path)
    # shipped weights are known by their name, wherever the package lies
    return f"{where}{data} ({file.name if file.parent == FOLDER else file})"


def voxel_size(cfg: DictConfig) -> float:
    """Edge of a voxel or of a native cell that the run's pairs are placed on [m]."""
    return float(cfg.data.voxel_size)
